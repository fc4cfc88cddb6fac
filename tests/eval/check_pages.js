// The pages with figures, eval/suite/page.html and eval/suite/compare.html, on made-up results in a document of 60 lines: what is
// named, that every axis of bytes has the same ticks, where a front is drawn, and that a small screen is enough.
//
// usage: node check_pages.js ROOT
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm"), assert = require("assert");
const root = process.argv[2], read = name => fs.readFileSync(path.join(root, name), "utf8");

// ---- a document ---------------------------------------------------------------------------------

class Node {
  constructor(name) { Object.assign(this, {name, attributes: {}, children: [], style: {setProperty() {}}, classList: {toggle() {}}, dataset: {}}); }
  setAttribute(k, v) { this.attributes[k] = String(v); }
  append(...some) { this.children.push(...some.filter(e => e !== "")); }
  replaceChildren(...some) { this.children = []; this.append(...some); }
  addEventListener() {}
  set textContent(t) { this.children = [t]; }
  set className(c) { this.attributes.class = c; }
  get text() { return this.children.map(e => e instanceof Node ? e.text : String(e)).join(""); }
  all(name) { return this.children.flatMap(e => e instanceof Node ? [...(e.name === name ? [e] : []), ...e.all(name)] : []); }
}

// The page as it is drawn in a window of that width; resize(w) draws it anew.
function open(template, data, width) {
  const html = read(template).replace("@FIGURES_CSS@", "").replace("@FIGURES_JS@", read("eval/suite/figures.js"))
    .replace("/*RESULTS*/null", () => JSON.stringify(data));
  const script = html.slice(html.indexOf("<script>") + 8, html.lastIndexOf("</script>"));
  const page = new Node("main"), view = {clientWidth: width, scrollTop: 0}, listeners = [];
  const context = vm.createContext({Node, innerWidth: width, innerHeight: 800, scrollTo() {},
    addEventListener: (what, call) => what === "resize" && listeners.push(call),
    document: {documentElement: view, getElementById: id => id === "page" ? page : new Node(id), querySelectorAll: () => [],
      createElement: name => new Node(name), createElementNS: (_, name) => new Node(name)}});
  vm.runInContext(script, context);
  return {page, run: code => vm.runInContext(code, context), resize: w => { view.clientWidth = w; listeners.forEach(c => c()); }};
}

// ---- made-up results ------------------------------------------------------------------------------

const GROUPS = ["shape", "caption", "all"];
const span = (v, wide) => ({value: v, low: v - wide, high: v + wide});

// Rows [name, share of exact's bytes, score] with intervals of that width.
function report(rows, wide) {
  const spread = {n: 9, mean: 5, p10: 2, p50: 4, p90: 90};
  return {eval: {checkpoint: "0123", items: 440, seed: 2, by: "process", dialog: "kept", first: "held", kv_dtype: "bf16"},
    results: rows.map(([name, part, score], i) => ({name, policy: `${name},with=all,its=parameters`, note: null, items_with_note: 0,
      ttft_ms: spread, tpot_ms: spread, groups: GROUPS.map((group, g) => ({group, measure: "accuracy", n: 40, chance: 0.1,
        score: span(score, wide), difference: i ? span(score - rows[0][2], wide) : null,
        kv_bytes: {visual_exact: 1e6 * (g + 1), visual: 1e6 * (g + 1) * part, visual_end: 1e6 * (g + 1) * part, sent: 2e6}}))}))};
}
function comparison(rows, wide) {
  const triple = (v, w) => [v, v - w, v + w];
  return {eval: {...report([], 0).eval, commit: "abc", machine: "m", date: "d", budgets: ["1/8"]}, timings: null,
    groups: GROUPS.map((group, i) => ({group, measure: i === 2 ? "mean score" : "accuracy", n: 40, chance: 0.1})),
    rows: rows.map(([name, part, score], i) => ({names: [name], method: name.includes("=") ? name : null, preset: !name.includes("="), budget: null,
      asked: name, policy: name, note: null, items_with_note: 0, groups: GROUPS.map((_, g) => ({score: triple(score, wide),
        difference: i ? triple(score - rows[0][2], wide) : null, visual: 1e6 * (g + 1) * part, visual_end: 1e6 * (g + 1) * part, sent: 2e6 * part}))}))};
}
const ROWS = [["exact", 1, 0.9], ["quality", 0.06, 0.4], ["paper-tova", 0.2, 0.7], ["select=csp", 0.11, 0.55]];
const PAGES = [["eval/suite/page.html", report], ["eval/suite/compare.html", comparison]];

// ---- what is looked at ----------------------------------------------------------------------------

const figures = page => page.all("svg").filter(s => (s.attributes["aria-label"] || "").includes("against"));
const texts = svg => svg.all("text").map(t => t.text);
const ticks = svg => svg.all("text").filter(t => /^1(\/\d+)?$/.test(t.text));
const fronts = svg => svg.all("path").filter(p => p.attributes.class === "front");

const checks = {
  "the front is what eval/tables.py says"() {
    const {run} = open("eval/suite/page.html", report(ROWS, 0.01), 1280);
    for (const c of JSON.parse(read("tests/eval/fronts.json"))) {
      const points = c.points.map(([x, low, high], i) => ({i, x, y: (low + high) / 2, low, high}));
      assert.deepStrictEqual([...run(`(points => front(points).map(p => p.i))`)(points)], c.front, c.why);
    }
  },
  "a front is drawn where intervals separate, and nowhere else"() {
    for (const [template, made] of PAGES) {
      for (const svg of figures(open(template, made(ROWS, 0.01), 1280).page)) assert.strictEqual(fronts(svg).length, 1, template);
      for (const svg of figures(open(template, made(ROWS, 0.6), 1280).page)) assert.strictEqual(fronts(svg).length, 0, template);
    }
  },
  "policies are named in the figures, not numbered"() {
    for (const [template, made] of PAGES) {
      const svg = figures(open(template, made(ROWS, 0.01), 1280).page)[0], said = texts(svg);
      for (const name of ["quality", "paper-tova", "csp"]) assert(said.some(t => t.includes(name)), `${template}: ${name} of ${said}`);
    }
    const times = open("eval/suite/page.html", report(ROWS, 0.01), 1280).page.all("svg").find(s => s.attributes["aria-label"] === "TTFT");
    for (const [name] of ROWS) assert(texts(times).includes(name), name);
  },
  "names cover no mark and no other name"() {
    const many = Array.from({length: 30}, (_, i) => [`paper-method-${i}`, 0.05 + 0.03 * i, 0.5 + 0.01 * (i % 7)]);
    const {run} = open("eval/suite/page.html", report(many, 0.05), 375);
    const marks = many.map((_, i) => ({at: 40 + 8 * i, y: 60 + 3 * (i % 7)})), svg = new Node("svg");
    const lost = run("nameThem")(svg, {w: 290, h: 200, x0: 34, x1: 280, y0: 8, y1: 160}, many.map(([text], i) => ({text, points: [marks[i]]})), marks);
    const boxes = svg.all("text").map(t => {
      const wide = 6 * t.text.length, x = +t.attributes.x - (t.attributes["text-anchor"] === "end" ? wide : 0), y = +t.attributes.y;
      return {text: t.text, l: x, r: x + wide, t: y - 9, b: y + 3};
    });
    assert.strictEqual(boxes.length + lost.length, many.length);
    assert(boxes.length > 3 && lost.length > 0, `${boxes.length} names of ${many.length}`);
    for (const a of boxes) {
      assert(a.l >= 34 && a.r <= 290, `${a.text} covers the axis or leaves the figure`);
      for (const b of boxes) assert(a === b || a.r <= b.l || b.r <= a.l || a.b <= b.t || b.b <= a.t, `${a.text} covers ${b.text}`);
      for (const m of marks) assert(m.at <= a.l || m.at >= a.r || m.y <= a.t || m.y >= a.b, `${a.text} covers a mark`);
    }
  },
  "bytes are on the same logarithmic axis in every figure"() {
    for (const [template, made] of PAGES) {
      const shown = figures(open(template, made(ROWS, 0.01), 1280).page).filter(s => !s.attributes.viewBox.startsWith("0 0 960"));
      assert(shown.length >= 3);
      const of = svg => ticks(svg).map(t => `${t.text}@${(+t.attributes.x).toFixed(2)}`).join(" ");
      for (const svg of shown) assert.strictEqual(of(svg), of(shown[0]), template);
      const at = ticks(shown[0]).map(t => +t.attributes.x), value = ticks(shown[0]).map(t => 1 / +(t.text.split("/")[1] || 1));
      assert(at.length >= 3, of(shown[0]));
      const octave = i => (at[i] - at[i + 1]) / Math.log2(value[i] / value[i + 1]);
      for (let i = 0; i + 2 < at.length; i++) assert(Math.abs(octave(i) - octave(i + 1)) < 0.01, of(shown[0]));
    }
  },
  "times are too"() {
    const svg = open("eval/suite/page.html", report(ROWS, 0.01), 1280).page.all("svg").find(s => s.attributes["aria-label"] === "TTFT");
    const x = v => +svg.all("text").find(t => t.text === String(v)).attributes.x;
    assert(Math.abs((x(50) - x(5)) - (x(20) - x(2))) < 0.01);
  },
  "a window of 375 pixels is enough"() {
    for (const [template, made] of PAGES)
      for (const width of [375, 320]) {
        const {page, resize} = open(template, made(ROWS, 0.01), 1280);
        resize(width);
        for (const svg of figures(page)) assert(+svg.attributes.viewBox.split(" ")[2] <= Math.max(300, width - 32), svg.attributes.viewBox);
        assert(texts(figures(page)[0]).some(t => t.includes("quality")), "names are there, too");
        for (const table of page.all("table"))
          assert(page.all("div").some(d => d.attributes.class === "scroll" && d.all("table").includes(table)) ||
            page.all("figure").some(d => d.attributes.class === "scroll" && d.all("table").includes(table)), "tables scroll by themselves");
      }
    for (const [template] of PAGES) assert(/name="viewport" content="width=device-width/.test(read(template)));
  },
  "pages say how it was asked, and that they are no ranking"() {
    const bytes = /^FACTS_BYTES = (\d+) /m.exec(read("eval/tables.py"))[1];
    for (const [template, made] of PAGES) {
      const said = open(template, made(ROWS, 0.01), 1280).page.text;
      assert(said.includes("This is not a ranking") && said.includes(`fits in ${bytes} bytes`) && said.includes("16000 times"), said.slice(0, 900));
      const rich = made(ROWS, 0.01);
      rich.eval.scenes = "rich";
      const told = open(template, rich, 1280).page.text;
      assert(told.includes("This is not a ranking") && !told.includes("fits in"), told.slice(0, 900));
      assert(said.includes("Dialogs are kept conversations, and every token, including the first, is computed from the compressed KV"), template);
    }
  },
  "policies that look alike do not"() {
    const many = Array.from({length: 64}, (_, i) => [`p${i}`, 0.1, 0.5]), {page, run} = open("eval/suite/page.html", report(many, 0.1), 1280);
    const looks = many.map((_, i) => { const e = run("marker")(i, 0, 0, 4); return JSON.stringify([e.name, e.attributes]); });
    assert.strictEqual(new Set(looks).size, 64);
    assert(page.text.includes("p63"));
  },
};

for (const [name, check] of Object.entries(checks)) {
  check();
  console.log(`ok: ${name}`);
}
