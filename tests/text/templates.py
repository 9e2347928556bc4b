"""Chat templates of the shapes that checkpoints publish, written for these tests."""

from __future__ import annotations

# ChatML with a system prompt of its own when the conversation brings none.
CHATML = """\
{% for message in messages %}
{% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}
"""

# Headers by token pairs, trimmed content, the date, and a generation block for training.
LLAMA3 = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n\\n' }}
{{- system_message }}
{{- '<|eot_id|>' }}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {%- generation %}
        {{- message['content'] | trim + '<|eot_id|>' }}
        {%- endgeneration %}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Tools in XML, thinking cut out of the history, grouped tool results, a backward walk for the last question.
QWEN = """\
{%- macro text_of(content) %}
    {{- content if content is string else content | map(attribute='text') | join }}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call functions within <tools></tools>:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\nAnswer as <tool_call>\\n{...}\\n</tool_call><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(question=-1) %}
{%- for message in messages | reverse %}
    {%- set text = message.content %}
    {%- set is_result = text.startswith('<tool_response>') and text.endswith('</tool_response>') %}
    {%- if ns.question < 0 and message.role == "user" and not is_result %}
        {%- set ns.question = loop.revindex0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = text_of(message.content) | trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('System message must be at the beginning.') }}
        {%- endif %}
        {%- continue %}
    {%- endif %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.question and reasoning %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
            {%- for key, value in tool_call.arguments|items %}
                {{- '<parameter=' + key + '>\\n' }}
                {{- value if value is string else value | tojson }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

# Brackets, strict alternation, BOS and EOS as variables.
MISTRAL = """\
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] + '\\n\\n' %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set rest = messages %}
{%- endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'].strip() + eos_token }}
    {%- endif %}
{%- endfor %}
"""

# Control tokens put together from the role.
ROLE_TOKENS = """\
{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}
"""
ROLE_TOKENS_CONTROL = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")

# Thinking with a switch and an effort, one leading system message, past thinking kept on demand, images.
QWEN38 = """\
{%- macro text_of(content, is_system=false) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for item in content %}
            {%- if item.type == 'image' %}
                {%- if is_system %}{{- raise_exception('A system message cannot hold images.') }}{%- endif %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- else %}
                {{- item.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- set thinks = not (enable_thinking is defined and enable_thinking is false) %}
{%- set keeps = preserve_thinking is undefined or preserve_thinking is true %}
{%- set effort = reasoning_effort | default('xhigh', true) %}
{%- set blocks = namespace(text='', sep='') %}
{%- if thinks %}
    {%- if effort not in ('xhigh', 'medium', 'low') %}
        {{- raise_exception('There is no effort ' ~ effort ~ '.') }}
    {%- endif %}
    {%- if effort == 'xhigh' %}
        {%- set blocks.text = 'Think for as long as it takes.' %}
    {%- elif effort == 'low' %}
        {%- set blocks.text = 'Think no longer than you must.' %}
    {%- endif %}
{%- endif %}
{%- if tools %}
    {%- set lines = namespace(text='') %}
    {%- for tool in tools %}{%- set lines.text = lines.text ~ '\\n' ~ (tool | tojson) %}{%- endfor %}
    {%- set sep = '\\n\\n' if blocks.text else '' %}
    {%- set blocks.text = blocks.text ~ sep ~ '# Tools\\n\\n<tools>' ~ lines.text ~ '\\n</tools>\\n\\n'
        ~ 'Call one with <function=NAME> and a <parameter=KEY> for each argument.' %}
{%- endif %}
{%- if messages[0].role == 'system' %}
    {%- set sep = '\\n\\n' if blocks.text else '' %}
    {%- set blocks.text = blocks.text ~ sep ~ (text_of(messages[0].content, true) | trim) %}
{%- endif %}
{%- if blocks.text %}
    {{- '<|im_start|>system\\n' ~ blocks.text ~ '<|im_end|>\\n' }}
{%- endif %}
{%- set last = namespace(query=-1) %}
{%- for message in messages %}
    {%- if message.role == 'user' and not text_of(message.content).startswith('<tool_response>') %}
        {%- set last.query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- if last.query < 0 %}
    {{- raise_exception('Somebody has to ask something.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = text_of(message.content) | trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- raise_exception('A system message has to be the first.') }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\\n' ~ content ~ '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and (keeps or loop.index0 > last.query) %}
            {{- '<think>\\n' ~ (message.reasoning_content | trim) ~ '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function.arguments is not mapping %}
                {{- raise_exception('Arguments have to be a mapping.') }}
            {%- endif %}
            {{- '\\n\\n' if loop.first and content else '' if loop.first else '\\n' }}
            {{- '<tool_call>\\n<function=' ~ call.function.name ~ '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {%- set value = value if value is string else value | tojson %}
                {{- '<parameter=' ~ key ~ '>\\n' ~ value ~ '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if not loop.previtem or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {%- if not loop.nextitem or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}
        {{- raise_exception('There is no role ' ~ message.role ~ '.') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' ~ ('<think>\\n' if thinks else '<think>\\n\\n</think>\\n\\n') }}
{%- endif %}
"""
