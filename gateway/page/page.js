// The page: a chat, with answers under several policies side by side, its settings, and the fleet.
import { ask, key } from "./api.js";
import { newChat, send, stop } from "./chat.js";
import { element, find, problem } from "./dom.js";
import { showFleet } from "./fleet.js";
import { takeImages } from "./images.js";
import { build, setModel } from "./policy.js";

let model = {};

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

// ---- the chat ----

const number = (id) => Number(find(id).value);

// The settings of the next answer. The same question again takes another seed where chance decides.
function how(again) {
  if (again && number("temperature") > 0) find("seed").value = number("seed") + 1;
  const policies = [...find("policies").querySelectorAll("input")].map((i) => i.value.trim() || "exact");
  const settings = { model: find("model").value, stream: true, max_tokens: number("tokens"), temperature: number("temperature"), seed: number("seed") };
  return { settings, policies: policies.length ? policies : ["exact"], model };
}

find("form").onsubmit = (e) => {
  e.preventDefault();
  problem("");
  const text = find("text").value;
  find("text").value = "";
  find("text").focus();
  send(text, takeImages(), how);
};
find("stop").onclick = stop;
find("new").onclick = () => {
  newChat();
  find("text").focus();
};
find("text").onkeydown = (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  find("form").requestSubmit();
};
document.addEventListener("keydown", (e) => e.key === "Escape" && !find("builder").open && stop());

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
find("settings").open = find("fleet-part").open = matchMedia("(min-width: 60rem)").matches;
find("fleet-part").ontoggle = showFleet;
addPolicy("exact");
addPolicy("quality");
await loadModel();
await showFleet();
setInterval(showFleet, 2000);
find("text").focus();
document.documentElement.dataset.ready = "yes";
