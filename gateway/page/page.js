// The page: images, a question, policies; the answers side by side; the fleet.
import { answer } from "./answer.js";
import { ask, key } from "./api.js";
import { element, find } from "./dom.js";
import { showFleet } from "./fleet.js";
import { build, setModel } from "./policy.js";

let model = {};
let images = []; // { name, type, url, picture }
let stopping = null;

const problem = (text) => {
  find("problem").textContent = text;
  find("problem").hidden = !text;
};

// ---- the images ----

async function addImage(file) {
  const url = await new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
  const picture = element("img", { src: url, alt: file.name });
  try {
    await picture.decode();
  } catch {
    problem(`${file.name}: not an image that can be read`);
    return;
  }
  problem("");
  const image = { name: file.name, type: file.type, url, picture };
  const item = element("li", {}, picture, element("button", {
    type: "button", ariaLabel: `Remove ${file.name}`,
    onclick: () => {
      images = images.filter((i) => i !== image);
      item.remove();
    },
  }, "\u00d7"));
  images.push(image);
  find("pictures").append(item);
}

async function addImages(files) {
  for (const file of [...files]) await addImage(file);
}

find("choose").onclick = () => find("file").click();
find("file").onchange = async (e) => {
  await addImages(e.target.files);
  e.target.value = ""; // the same file may be chosen again
};
find("example").onclick = async () => {
  const blob = await (await fetch("example.png")).blob();
  await addImage(new File([blob], "example.png", { type: "image/png" }));
  find("text").value ||= "Name the color of the square.";
};
document.addEventListener("paste", (e) => addImages(e.clipboardData.files));
document.addEventListener("dragover", (e) => {
  e.preventDefault();
  find("drop").classList.add("over");
});
document.addEventListener("dragleave", () => find("drop").classList.remove("over"));
document.addEventListener("drop", (e) => {
  e.preventDefault();
  find("drop").classList.remove("over");
  addImages(e.dataTransfer.files);
});

// ---- policies ----

function addPolicy(text) {
  const input = element("input", { value: text, ariaLabel: "Policy", spellcheck: false });
  input.setAttribute("list", "presets");
  const edit = element("button", { type: "button", onclick: async () => (input.value = (await build(input.value)) ?? input.value) }, "Build");
  const item = element("li", {}, input, edit, element("button", { type: "button", ariaLabel: "Remove this policy", onclick: () => item.remove() }, "\u00d7"));
  find("policies").append(item);
}

find("add").onclick = () => {
  addPolicy("exact");
  find("policies").lastChild.firstChild.focus();
};

// ---- asking ----

function body() {
  const content = [...images.map((i) => ({ type: "image_url", image_url: { url: i.url } })), { type: "text", text: find("text").value }];
  const number = (id) => Number(find(id).value);
  return { model: find("model").value, stream: true, max_tokens: number("tokens"), temperature: number("temperature"), seed: number("seed"), messages: [{ role: "user", content }] };
}

async function askAll() {
  const policies = [...find("policies").querySelectorAll("input")].map((i) => i.value.trim() || "exact");
  stopping?.abort();
  const mine = (stopping = new AbortController());
  find("stop").disabled = false;
  problem("");
  const shown = [...images];
  const answers = policies.map((p) => answer(p, body(), shown, model, mine.signal));
  find("answers").replaceChildren(...answers.map((a) => a.card));
  const texts = await Promise.all(answers.map((a) => a.done));
  texts.slice(1).forEach((text, i) => text !== null && texts[0] !== null && answers[i + 1].compare(texts[0]));
  if (stopping === mine) find("stop").disabled = true;
}

find("form").onsubmit = (e) => {
  e.preventDefault();
  askAll();
};
find("stop").onclick = () => stopping?.abort();
find("text").onkeydown = (e) => {
  if (e.key === "Enter" && e.ctrlKey) find("form").requestSubmit();
};

// ---- the model and the fleet ----

async function loadModel() {
  try {
    const names = [...new Set((await ask("v1/models")).data.map((m) => m.id))];
    const before = find("model").value;
    find("model").replaceChildren(...names.map((n) => element("option", {}, n)));
    if (names.includes(before)) find("model").value = before;
    model = await ask(`fovea/model?${new URLSearchParams({ model: find("model").value })}`);
    setModel(model);
    problem("");
  } catch (e) {
    problem(e.message);
  }
}

find("model").onchange = loadModel;
find("key").value = key.get();
find("key").onchange = async (e) => {
  key.set(e.target.value);
  await loadModel();
  await showFleet();
};
addPolicy("exact");
addPolicy("quality");
await loadModel();
await showFleet();
setInterval(showFleet, 2000);
document.documentElement.dataset.ready = "yes";
