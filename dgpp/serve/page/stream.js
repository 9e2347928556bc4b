// Server-sent events of a fetch response, as parsed objects, and what a chat stream adds up to.

/** The objects of a stream until [DONE]. Comments are skipped. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      for (const line of block.split("\n")) {
        if (!line.startsWith("data: ")) continue;
        const data = line.slice(6);
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  }
}

/** An answer as it grows. `take` adds one chunk. */
export class Answer {
  content = "";
  reasoning = "";
  calls = [];
  finish = null;
  usage = null;
  error = null;
  started = performance.now();
  first = null;
  last = null;

  take(chunk) {
    if (chunk.error) this.error = chunk.error.message;
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
    if (content || reasoning || calls) {
      this.last = performance.now();
      this.first ??= this.last;
    }
    this.content += content ?? "";
    this.reasoning += reasoning ?? "";
    for (const part of calls ?? []) this.#call(part);
    this.finish = choice.finish_reason ?? this.finish;
  }

  #call(part) {
    const call = (this.calls[part.index] ??= { id: part.id, type: part.type, name: "", input: "" });
    const said = part.function ?? part.custom ?? {};
    call.name += said.name ?? "";
    call.input += said.arguments ?? said.input ?? "";
  }

  /** What was measured, in words. */
  figures() {
    const said = [];
    if (this.usage) {
      const { prompt_tokens: prompt, completion_tokens: generated } = this.usage;
      said.push(`${generated} tokens`);
      const seconds = (this.last - this.first) / 1000;
      if (generated > 1 && seconds > 0) said.push(`${((generated - 1) / seconds).toFixed(1)} tokens/s`);
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      said.push(`prompt ${prompt} tokens, ${cached} from the cache`);
    }
    if (this.first !== null) said.push(`first after ${((this.first - this.started) / 1000).toFixed(2)} s`);
    if (this.finish === "length") said.push("cut at the token limit");
    return said.join(" · ");
  }

  /** The assistant message for the next request. */
  message() {
    const message = { role: "assistant", content: this.content };
    if (this.reasoning) message.reasoning_content = this.reasoning;
    if (this.calls.length) {
      message.tool_calls = this.calls.map((call) =>
        call.type === "custom"
          ? { id: call.id, type: "custom", custom: { name: call.name, input: call.input } }
          : { id: call.id, type: "function", function: { name: call.name, arguments: call.input } });
    }
    return message;
  }
}
