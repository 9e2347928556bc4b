// The chat page. Everything a model says is shown through textContent: it is never markup.

import { Answer, events } from "/page/stream.js";

const $ = (id) => document.getElementById(id);
let messages = []; // of the conversation on the page
let running = null; // the AbortController of the answer under way

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function headers() {
  const key = sessionStorage.getItem("key");
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

function tell(text) {
  $("state").textContent = text;
}

async function loadModels() {
  let response;
  try {
    response = await fetch("/v1/models", { headers: headers() });
  } catch {
    tell("The server cannot be reached.");
    return;
  }
  $("key-form").hidden = response.status !== 401;
  if (response.status === 401) {
    tell("");
    $("key").focus();
    return;
  }
  const listed = (await response.json()).data ?? [];
  $("model").replaceChildren(...listed.map((model) => element("option", "", model.id)));
  tell(listed.length ? `context ${listed[0].context.request_limit_tokens} tokens` : "");
}

// --- one turn on the page ---------------------------------------------------------------------------------------------

function addTurn(role, title) {
  $("empty")?.remove();
  const turn = element("article", `turn ${role}`);
  turn.append(element("h2", "", title));
  $("log").append(turn);
  return turn;
}

/** Shows a growing answer in a turn, touching only what changed. */
class View {
  constructor(turn) {
    this.turn = turn;
    this.calls = [];
  }

  show(answer) {
    if (answer.reasoning) {
      if (!this.reasoning) {
        const folded = element("details");
        folded.append(element("summary", "", "Reasoning"));
        this.reasoning = element("div", "text");
        folded.append(this.reasoning);
        this.turn.append(folded);
      }
      this.reasoning.textContent = answer.reasoning;
    }
    if (answer.content) {
      this.content ??= this.#add("div", "text");
      this.content.textContent = answer.content;
    }
    answer.calls.forEach((call, index) => {
      if (!this.calls[index]) {
        const box = this.#add("div", "call");
        box.append(element("strong", "", `Calls ${call.name}`), element("pre"));
        this.calls[index] = box;
      }
      this.calls[index].querySelector("pre").textContent = readable(call.input);
    });
  }

  end(answer, stopped) {
    this.turn.classList.remove("busy");
    if (answer.error) this.#add("p", "error", answer.error).setAttribute("role", "alert");
    const said = [answer.figures(), stopped ? "stopped" : ""].filter(Boolean).join(" · ");
    if (said) this.#add("p", "figures", said);
  }

  #add(...parts) {
    const made = element(...parts);
    this.turn.append(made);
    return made;
  }
}

function readable(input) {
  try {
    return JSON.stringify(JSON.parse(input), null, 2);
  } catch {
    return input; // still growing, or no JSON
  }
}

// --- asking -----------------------------------------------------------------------------------------------------------

function body(conversation) {
  const system = $("system").value.trim();
  const tools = $("tools").value.trim();
  return {
    model: $("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...conversation],
    stream: true,
    stream_options: { include_usage: true, include_obfuscation: false },
    ...($("temperature").value === "" ? {} : { temperature: Number($("temperature").value) }),
    ...($("limit").value === "" ? {} : { max_tokens: Number($("limit").value) }),
    ...($("effort").value === "" ? {} : { reasoning_effort: $("effort").value }),
    ...(tools === "" ? {} : { tools: JSON.parse(tools) }),
  };
}

async function ask(text) {
  const conversation = messages; // "New" begins another one while this answer may still end
  conversation.push({ role: "user", content: text });
  addTurn("user", "You").append(element("div", "text", text));
  const turn = addTurn("assistant busy", $("model").value || "Model");
  const view = new View(turn);
  const answer = new Answer();
  running = new AbortController();
  busy(true);
  toEnd();
  let stopped = false;
  try {
    const request = { method: "POST", headers: headers(), body: JSON.stringify(body(conversation)), signal: running.signal };
    const response = await fetch("/v1/chat/completions", request);
    if (!response.ok) throw new Error((await response.json()).error?.message ?? response.statusText);
    for await (const chunk of events(response)) {
      const followed = atEnd();
      answer.take(chunk);
      view.show(answer);
      if (followed) toEnd();
    }
    if (answer.finish === null && !answer.error) answer.error = "The connection ended before the answer did.";
  } catch (error) {
    stopped = error.name === "AbortError";
    if (!stopped) answer.error = error instanceof SyntaxError ? `Tools: ${error.message}` : error.message;
  }
  view.end(answer, stopped);
  if (answer.finish !== null || answer.content) conversation.push(answer.message());
  else conversation.pop(); // nothing came: the next question stands on its own
  running = null;
  busy(false);
  toEnd();
}

function busy(is) {
  $("send").hidden = is;
  $("stop").hidden = !is;
  $("log").setAttribute("aria-busy", String(is));
  if (!is) $("prompt").focus();
}

function atEnd() {
  const log = $("log");
  return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
}

function toEnd() {
  $("log").scrollTop = $("log").scrollHeight;
}

function grow() {
  const field = $("prompt");
  field.rows = Math.min(10, field.value.split("\n").length);
}

// --- the controls -----------------------------------------------------------------------------------------------------

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("prompt").value.trim();
  if (!text || running) return;
  $("prompt").value = "";
  grow();
  ask(text);
});

$("prompt").addEventListener("input", grow);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("ask").requestSubmit();
  }
});

$("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.altKey && event.key.toLowerCase() === "n") $("new").click();
});

$("new").addEventListener("click", () => {
  running?.abort();
  messages = [];
  $("log").replaceChildren();
  $("prompt").focus();
});

$("options-button").addEventListener("click", () => {
  $("options").hidden = !$("options").hidden;
  $("options-button").setAttribute("aria-expanded", String(!$("options").hidden));
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value);
  $("key").value = "";
  loadModels();
});

$("theme").addEventListener("change", () => {
  localStorage.setItem("theme", $("theme").value);
  document.documentElement.dataset.theme = $("theme").value;
});
$("theme").value = localStorage.getItem("theme") ?? "";
document.documentElement.dataset.theme = $("theme").value;

loadModels();
