// The answer under one policy: text as it arrives, then its cost and the kept tokens.
import { ask, stream } from "./api.js";
import { differences } from "./diff.js";
import { bytes, element } from "./dom.js";
import { overlay } from "./overlay.js";

const milliseconds = (ms) => `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function copyable(title, text) {
  const button = element("button", { type: "button" }, "Copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text and copy it";
    }
  };
  return element("details", {}, element("summary", {}, title), element("pre", {}, text), button);
}

// The same call as a command line, with images as files.
function elsewhere(body, images, policy) {
  const url = `${location.origin}/v1`;
  let n = 0;
  const parts = body.messages[0].content.map((p) => (p.image_url ? { type: "image_url", image_url: { url: `IMAGE${n++}` } } : p));
  const plain = { ...body, stream: undefined, messages: [{ role: "user", content: parts }], policy, fovea_report: true };
  let text = JSON.stringify(plain);
  const pieces = images.map((image, i) => {
    const before = text.slice(0, text.indexOf(`"IMAGE${i}"`));
    text = text.slice(before.length + `"IMAGE${i}"`.length - 1);
    return `printf %s ${quote(`${before}"`)}; printf 'data:${image.type};base64,'; base64 -w0 ${quote(image.name)}; `;
  });
  const curl = images.length
    ? `{ ${pieces.join("")}printf %s ${quote(text)}; } |\n    curl ${url}/chat/completions -d @-`
    : `curl ${url}/chat/completions -d ${quote(text)}`;
  const python = [
    ...(images.length ? ["import base64"] : []), "import openai", "",
    `client = openai.OpenAI(base_url=${JSON.stringify(url)}, api_key="KEY")`,
    ...images.map((image, i) => `image${i} = "data:${image.type};base64," + base64.b64encode(open(${JSON.stringify(image.name)}, "rb").read()).decode()`),
    `answer = client.chat.completions.create(model=${JSON.stringify(body.model)}, max_tokens=${body.max_tokens}, temperature=${body.temperature}, seed=${body.seed},`,
    `    messages=[{"role": "user", "content": ${JSON.stringify(parts).replaceAll(/"IMAGE(\d+)"/g, "image$1")}}],`,
    `    extra_body={"policy": ${JSON.stringify(policy)}, "fovea_report": True})`,
    "print(answer.choices[0].message.content)", "print(answer.choices[0].fovea)"].join("\n");
  return [copyable("as curl", curl), copyable("in Python", python)];
}

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

// body: without a policy; images: { name, type, picture }; model: from /fovea/model.
export function answer(policy, body, images, model, signal) {
  const text = element("p", { className: "answer" });
  const card = element("article", {}, element("h2", {}, policy), text);
  const done = run().catch((e) => {
    if (e.name !== "AbortError") card.append(element("p", { className: "error", role: "alert" }, e.message));
    return null;
  });

  async function run() {
    const begin = performance.now();
    let first = 0, last = 0, fovea = null;
    for await (const event of stream("v1/chat/completions", { ...body, policy, kept_tokens: images.length > 0 }, signal)) {
      const choice = event.choices[0];
      const piece = choice?.delta.content;
      if (choice) last = performance.now(); // the last token may have no text
      if (piece) {
        first ||= last;
        text.append(piece);
      }
      fovea = choice?.fovea ?? fovea;
    }
    const report = fovea?.report ?? {};
    const times = { first: (first || last) - begin, rest: last - (first || last) };
    if (images.length && report.kept) {
      const layouts = await Promise.all(images.map(({ picture }) =>
        ask(`fovea/layout?${new URLSearchParams({ model: body.model, w: picture.naturalWidth, h: picture.naturalHeight, images: images.length })}`)));
      card.append(overlay(images.map((i) => i.picture), layouts.map((l) => l.spans), report.kept, model.n_kv ?? 1, model.n_layer ?? 1));
    }
    card.append(costs(report, times), copyable("policy as text", fovea?.policy || "exact"), ...elsewhere(body, images, policy));
    for (const note of report.notes ?? []) card.append(element("p", {}, element("small", {}, `${note.stage}: ${note.text}`)));
    return text.textContent;
  }

  // Marks the words that differ from another answer.
  function compare(other) {
    text.replaceChildren(...differences(other, text.textContent).map(([word, differs]) => (differs && word.trim() ? element("mark", {}, word) : word)));
  }
  return { card, done, compare };
}
