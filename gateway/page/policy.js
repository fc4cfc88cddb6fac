// Policies as text, and the dialog that builds one from the table of methods in GetModel.
import { element, find } from "./dom.js";

let model = { methods: [], presets: [], conflicts: [] };
let choices = {}; // stage -> { method, params: name -> text }

// "stage=method,name=value;..." -> choices; presets in it are replaced by their texts.
export function parse(text, presets) {
  const out = {};
  for (const part of text.split(";").map((p) => p.trim()).filter(Boolean)) {
    const [head, ...rest] = part.split(",").map((p) => p.trim());
    const [stage, method] = head.split("=").map((p) => p.trim());
    if (!method || stage === "preset") {
      Object.assign(out, parse(presets.find((p) => p.name === (method ?? stage))?.text ?? "", presets));
    } else if (method === "none") {
      delete out[stage];
    } else {
      out[stage] = { method, params: Object.fromEntries(rest.map((p) => p.split("=").map((s) => s.trim()))) };
    }
  }
  return out;
}

export function print(chosen) {
  const text = Object.entries(chosen).map(([stage, c]) =>
    [`${stage}=${c.method}`, ...Object.entries(c.params).filter(([, v]) => v !== "").map(([n, v]) => `${n}=${v}`)].join(","));
  return text.join(";") || "exact";
}

// Tells whether the choices fit "stage=method[,name=word][,name!=word]" or "stage=*".
function fits(side, chosen) {
  const [head, ...conditions] = side.split(",");
  const [stage, method] = head.split("=");
  const choice = chosen[stage];
  if (!choice || (method !== "*" && method !== choice.method)) return false;
  return conditions.every((condition) => {
    const [name, word] = condition.split(/!?=/);
    const p = model.methods.find((m) => m.stage === stage && m.name === choice.method)?.params?.find((q) => q.name === name);
    const value = choice.params[name] ?? p?.words?.[p.default_value ?? 0];
    return condition.includes("!=") ? value !== word : value === word;
  });
}

export const conflictsOf = (chosen) => (model.conflicts ?? []).filter((c) => fits(c.a, chosen) && fits(c.b, chosen));

function parameter(choice, p) {
  const set = (e) => {
    choice.params[p.name] = e.target.value;
    show();
  };
  const given = choice.params[p.name] ?? "";
  let input;
  if (p.type === "choice") {
    input = element("select", { onchange: set }, ...p.words.map((w) => element("option", {}, w)));
    input.value = given || p.words[p.default_value ?? 0];
  } else if (p.type === "text" || p.type.startsWith("layer")) { // a layer may be "3/32"
    input = element("input", { oninput: set, value: given, placeholder: p.text ?? `${p.default_value ?? 0}/32`, size: 8 });
  } else {
    const step = p.type === "float" ? "any" : "1";
    input = element("input", { oninput: set, type: "number", value: given, placeholder: String(p.default_value ?? 0), step, min: p.min ?? 0, max: p.max ?? "" });
  }
  const range = p.type === "int" || p.type === "float" ? `${p.min ?? 0} to ${p.max ?? 0}` : "";
  const help = [[range, p.unit].filter(Boolean).join(" "), p.meaning].filter(Boolean).join(": ");
  return element("label", {}, p.name, input, element("small", {}, help));
}

function stage(name) {
  const methods = model.methods.filter((m) => m.stage === name);
  const select = element("select", {
    ariaLabel: name,
    onchange: () => {
      if (select.value) choices[name] = { method: select.value, params: {} };
      else delete choices[name];
      rebuild();
      find("stages").querySelector(`[aria-label="${name}"]`).focus();
    },
  }, element("option", { value: "" }, "none"), ...methods.map((m) => element("option", {}, m.name)));
  const chosen = choices[name];
  select.value = chosen?.method ?? "";
  const method = methods.find((m) => m.name === chosen?.method);
  const more = method ? [element("p", {}, method.summary, " ", element("small", {}, method.source)), element("p", {}, element("small", {}, `Depends on: ${(method.depends_on ?? []).join(", ") || "nothing"}.`)), ...(method.params ?? []).map((p) => parameter(chosen, p))] : [];
  return element("fieldset", {}, element("legend", {}, name), select, ...more);
}

function show() {
  const bad = conflictsOf(choices);
  find("built").textContent = print(choices);
  find("conflicts").textContent = bad.map((c) => `${c.a} and ${c.b} exclude each other: ${c.why}.`).join(" ");
  find("conflicts").className = bad.length ? "error" : "";
  find("use").disabled = bad.length > 0;
}

function rebuild() {
  const stages = [...new Set(model.methods.map((m) => m.stage))];
  find("stages").replaceChildren(...stages.map(stage));
  show();
}

function start(text) {
  choices = parse(text, model.presets ?? []);
  rebuild();
}

// What a preset sends of an image, against `exact`: "at least 15x smaller"; "" if no bound tells.
function size(preset) {
  const times = (model.presets.find((p) => p.name === "exact")?.bytes ?? 0) / preset.bytes;
  return times > 1.05 ? `at least ${times < 10 ? times.toFixed(1) : Math.floor(times)}x smaller` : "";
}

// Presets are listed from `exact` to the one that sends the least, by bounds that hold for any image; those that the model cannot run
// are left out.
export function setModel(m) {
  model = { methods: [], presets: [], conflicts: [], ...m };
  const weight = (p) => (p.name === "exact" ? Infinity : p.bytes);
  const ordered = model.presets.filter((p) => weight(p)).sort((a, b) => weight(b) - weight(a));
  const words = (p, ...more) => [...more, size(p)].filter(Boolean).join(", ");
  find("presets").replaceChildren(...ordered.map((p) => element("option", { value: p.name }, words(p, p.meaning))));
  find("from").replaceChildren(...ordered.map((p) => element("option", { value: p.name }, words(p, p.name))));
}

find("from").onchange = (e) => start(e.target.value);

// Resolves to the policy's text, or null if cancelled.
export function build(text) {
  const dialog = find("builder");
  find("from").value = model.presets.some((p) => p.name === text) ? text : "exact";
  start(text);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.onclose = () => done(dialog.returnValue === "use" ? print(choices) : null);
  });
}
