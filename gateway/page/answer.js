// The answer under one policy: text as it arrives, then its cost and the kept tokens.
import { ask, stream } from "./api.js";
import { differences } from "./diff.js";
import { bytes, copyButton, element } from "./dom.js";
import { elsewhere } from "./elsewhere.js";
import { overlay } from "./overlay.js";

const milliseconds = (ms) => `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;

function costs(report, times) {
  const rows = [
    ["KV exact", bytes(report.bytes_raw ?? 0)],
    ["KV sent", bytes(report.transfer?.bytes_sent ?? 0)],
    ["KV held", bytes((report.bytes_visual ?? 0) + (report.bytes_text ?? 0))],
    ["time to first token", `${milliseconds(times.first)} here, ${milliseconds(1000 * (report.seconds_first_token ?? 0))} in the fleet`],
    ["time per token", report.n_generated > 1
      ? `${milliseconds(times.rest / (report.n_generated - 1))} here, ${milliseconds(1000 * (report.seconds_decode ?? 0) / (report.n_generated - 1))} in the fleet`
      : "one token"],
    ["tokens", `${report.n_prompt ?? 0} in the prompt, ${report.n_visual ?? 0} of images; ${report.n_generated ?? 0} in the answer`]];
  return element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// What an answer cost, in a line: "12.0 KiB sent, 159x less than exact; first token after 40 ms".
function summary(report, times) {
  const sent = report.transfer?.bytes_sent ?? 0, less = (report.bytes_raw ?? 0) / sent;
  const share = sent && less >= 1.05 ? `, ${less < 10 ? less.toFixed(1) : Math.round(less)}x less than exact` : "";
  return `${bytes(sent)} sent${share}; first token after ${milliseconds(times.first)}`;
}

// A turn without an image of its own shows those before it when it is asked to.
async function heldTokens(body, images, report, model) {
  const layouts = await Promise.all(images.map(({ picture }) =>
    ask(`fovea/layout?${new URLSearchParams({ model: body.model, w: picture.naturalWidth, h: picture.naturalHeight, images: images.length })}`)));
  const figure = overlay(images.map((i) => i.picture), layouts.map((l) => l.spans), report.kept, model.n_kv ?? 1, model.n_layer ?? 1);
  const fresh = Array.isArray(body.messages.at(-1).content) && body.messages.at(-1).content.some((p) => p.type !== "text");
  return element("details", { open: fresh }, element("summary", {}, "image tokens kept, by layer"), figure);
}

// body: without a policy; images: those of its messages, { name, type, picture }; model: from /fovea/model.
// done: resolves to the text, "" after an error; what came before a stop is the answer.
export function answer(policy, body, images, model, signal) {
  const text = element("p", { className: "answer" });
  const card = element("article", { ariaBusy: "true" }, element("h2", {}, policy), text);
  const fail = (e) => {
    if (e.name === "AbortError") card.append(element("p", { className: "note" }, "stopped"));
    else card.append(element("p", { className: "error", role: "alert" }, e.message));
    return e.name === "AbortError" ? text.textContent : "";
  };
  const done = run().catch(fail).finally(() => (card.ariaBusy = "false"));

  async function run() {
    const begin = performance.now();
    const shown = images.length > 0 && images.every((i) => i.picture); // else there is nothing to draw the kept tokens on
    let first = 0, last = 0, fovea = null, finish = null;
    for await (const event of stream("v1/chat/completions", { ...body, policy, kept_tokens: shown }, signal)) {
      const choice = event.choices[0];
      const piece = choice?.delta.content;
      if (choice) last = performance.now(); // the last token may have no text
      if (piece) {
        first ||= last;
        text.append(piece);
      }
      fovea = choice?.fovea ?? fovea;
      finish = choice?.finish_reason ?? finish;
    }
    const report = fovea?.report ?? {};
    const times = { first: (first || last) - begin, rest: last - (first || last) };
    if (finish === "length") card.append(element("p", { className: "note" }, "cut: the limit of tokens is reached"));
    if (shown && report.kept) card.append(await heldTokens(body, images, report, model));
    const notes = (report.notes ?? []).map((note) => element("p", {}, element("small", {}, `${note.stage}: ${note.text}`)));
    card.append(
      element("details", { className: "costs" }, element("summary", {}, summary(report, times)), costs(report, times), ...notes),
      element("details", {}, element("summary", {}, "the same call elsewhere"), ...elsewhere(body, images, policy, fovea?.policy || "exact")),
      copyButton(() => text.textContent));
    return text.textContent;
  }

  // Marks the words that differ from another answer.
  function compare(other) {
    text.replaceChildren(...differences(other, text.textContent).map(([word, differs]) => (differs && word.trim() ? element("mark", {}, word) : word)));
  }
  return { card, done, compare };
}
