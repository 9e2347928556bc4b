"""Templates with tools of the families' published behaviour (spec/models_glm.md §5, spec/models_deepseek_mimo_flint.md
§4.6, spec/api.md §7.4), in our words."""

from __future__ import annotations

_CHATML_TOOLS = """\
{%- if tools or messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}
    {%- if tools %}
        {{- '\\n\\n# Tools\\n\\n<tools>' }}
        {%- for tool in tools %}{{- '\\n' ~ (tool | tojson) }}{%- endfor %}
        {{- '\\n</tools>\\n\\nCall them like this:\\n' ~ form }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
"""
_CHATML_RESULT = """\
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if not loop.nextitem or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
"""

# One JSON object in a block, no thinking.
HERMES = (
    """\
{%- set form = '<tool_call>\\n{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call>' %}
"""
    + _CHATML_TOOLS
    + """\
{%- for message in messages %}
    {%- if message.role == 'tool' %}
"""
    + _CHATML_RESULT
    + """\
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' ~ message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' ~ message.content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
)

# MiMo and Flint: calls without line breaks; the model opens its thinking itself, or finds it closed.
COMPACT = (
    """\
{%- set form = '<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>' %}
"""
    + _CHATML_TOOLS
    + """\
{%- for message in messages %}
    {%- if message.role == 'tool' %}
"""
    + _CHATML_RESULT
    + """\
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n<think>' ~ (message.reasoning_content or '') ~ '</think>' ~ message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call><function=' ~ call.function.name ~ '>' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' ~ key ~ '>' ~ (value if value is string else value | tojson) ~ '</parameter>' }}
            {%- endfor %}
            {{- '</function></tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' ~ message.content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' ~ ('<think></think>' if enable_thinking is false else '') }}
{%- endif %}
"""
)


def glm(*, has_effort: bool, clears: bool) -> str:
    """GLM-5.3-Flash and GLM-5.3 (`has_effort`), which differ in what becomes of past thinking by default (`clears`);
    GLM-4.7 (not `has_effort`) has a switch instead and always clears."""
    return (
        "[gMASK]<sop>"
        + (_GLM_EFFORT if has_effort else "")
        + (_GLM_TOOLS.replace("LISTED", "tool.function or tool" if has_effort else "tool"))
        + _GLM_TURNS.replace("CLEARS", "true" if clears else "false").replace(
            "EMPTY", "<think></think>" if has_effort else "</think>"
        )
        + (_GLM_END if has_effort else _GLM_SWITCH)
    )


_GLM_EFFORT = """\
{%- set effort = {'low': 'Low', 'high': 'High'}.get(reasoning_effort, 'Max') %}
{{- '<|system|>Reasoning Effort: ' ~ effort }}
"""
_GLM_TOOLS = """\
{%- if tools %}
    {{- '<|system|># Tools\\n\\n<tools>\\n' }}
    {%- for tool in tools %}
        {%- set listed = LISTED %}
        {%- if not listed.defer_loading %}{{- listed | tojson ~ '\\n' }}{%- endif %}
    {%- endfor %}
    {{- '</tools>\\n\\nCall them like this:\\n<tool_call>NAME' }}
    {{- '<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>' }}
{%- endif %}
"""
_GLM_TURNS = """\
{%- set clear = clear_thinking if clear_thinking is defined else CLEARS %}
{%- set last = namespace(user=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set last.user = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {{- '<|system|>' ~ message.content }}
    {%- elif message.role == 'user' %}
        {{- '<|user|>' ~ message.content }}
    {%- elif message.role == 'assistant' %}
        {%- set thinking = message.reasoning_content %}
        {%- set content = message.content %}
        {%- if thinking is not string and '</think>' in content %}
            {%- set thinking = content.split('</think>')[0].split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1] %}
        {%- endif %}
        {{- '<|assistant|>' }}
        {%- if thinking and (not clear or loop.index0 > last.user) %}
            {{- '<think>' ~ thinking ~ '</think>' }}
        {%- else %}
            {{- 'EMPTY' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>' ~ call.function.name }}
            {%- for key, value in call.function.arguments | items %}
                {%- set value = value if value is string else value | tojson %}
                {{- '<arg_key>' ~ key ~ '</arg_key><arg_value>' ~ value ~ '</arg_value>' }}
            {%- endfor %}
            {{- '</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|observation|>' }}{%- endif %}
        {%- if message.content is string %}
            {{- '<tool_response>' ~ message.content ~ '</tool_response>' }}
        {%- else %}
            {%- for part in message.content %}
                {{- '<tool_response>' ~ part.output ~ '</tool_response>' }}
            {%- endfor %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
"""
_GLM_END = "{%- if add_generation_prompt %}{{- '<|assistant|><think>' }}{%- endif %}\n"
_GLM_SWITCH = """\
{%- if add_generation_prompt %}
    {{- '<|assistant|>' ~ ('</think>' if enable_thinking is false else '<think>') }}
{%- endif %}
"""
