// The same call as a command line and in Python, with images as files, and the policy as text.
import { copyButton, element } from "./dom.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const copyable = (title, text) => element("section", {}, element("h3", {}, title), element("pre", { tabIndex: 0 }, text), copyButton(text));

// The messages with "IMAGE0" and so on instead of the URLs.
function withoutImages(messages) {
  let n = 0;
  const part = (p) => (p.type === "text" ? p : { type: p.type, [p.type]: { url: `IMAGE${n++}` } });
  return messages.map((m) => (Array.isArray(m.content) ? { ...m, content: m.content.map(part) } : m));
}

function curl(url, body, images) {
  let text = JSON.stringify(body);
  const pieces = images.map((image, i) => {
    const before = text.slice(0, text.indexOf(`"IMAGE${i}"`));
    text = text.slice(before.length + `"IMAGE${i}"`.length - 1);
    return `printf %s ${quote(`${before}"`)}; printf 'data:${image.type};base64,'; base64 -w0 ${quote(image.name)}; `;
  });
  return images.length
    ? `{ ${pieces.join("")}printf %s ${quote(text)}; } |\n    curl ${url}/chat/completions -d @-`
    : `curl ${url}/chat/completions -d ${quote(text)}`;
}

function python(url, body, messages, images, policy) {
  return [
    ...(images.length ? ["import base64"] : []), "import openai", "",
    `client = openai.OpenAI(base_url=${JSON.stringify(url)}, api_key="KEY")`,
    ...images.map((image, i) => `image${i} = "data:${image.type};base64," + base64.b64encode(open(${JSON.stringify(image.name)}, "rb").read()).decode()`),
    `answer = client.chat.completions.create(model=${JSON.stringify(body.model)}, max_tokens=${body.max_tokens}, temperature=${body.temperature}, seed=${body.seed},`,
    `    messages=${JSON.stringify(messages).replaceAll(/"IMAGE(\d+)"/g, "image$1")},`,
    `    extra_body={"policy": ${JSON.stringify(policy)}, "fovea_report": True})`,
    "print(answer.choices[0].message.content)", "print(answer.choices[0].fovea)"].join("\n");
}

// used: the policy as the fleet has understood it.
export function elsewhere(body, images, policy, used) {
  const url = `${location.origin}/v1`;
  const messages = withoutImages(body.messages);
  const plain = { ...body, stream: undefined, messages, policy, fovea_report: true };
  return [copyable("policy as text", used), copyable("as curl", curl(url, plain, images)), copyable("in Python", python(url, body, messages, images, policy))];
}
