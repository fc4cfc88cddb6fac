// Draws the figures of the pages of results; page.html and compare.html contain a copy.

// ---- elements -----------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
function node(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  e.append(...children);
  return e;
}
function shape(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return e;
}
function drawing(w, h, label) {
  return shape("svg", {viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label});
}

// A mark of the kind 0, 1, ...: circle, square, triangle, diamond, the triangle on its head, hexagon, star, cross.
const POLYGONS = [null, [[-1, -1], [1, -1], [1, 1], [-1, 1]], [[0, -1.3], [1.15, 0.8], [-1.15, 0.8]],
  [[0, -1.35], [1.35, 0], [0, 1.35], [-1.35, 0]], [[0, 1.3], [1.15, -0.8], [-1.15, -0.8]],
  [[-0.6, -1.05], [0.6, -1.05], [1.2, 0], [0.6, 1.05], [-0.6, 1.05], [-1.2, 0]],
  Array.from({length: 10}, (_, i) => [Math.sin(i * Math.PI / 5) * (i % 2 ? 0.62 : 1.45), -Math.cos(i * Math.PI / 5) * (i % 2 ? 0.62 : 1.45)]),
  [[-1.2, -0.45], [-0.45, -0.45], [-0.45, -1.2], [0.45, -1.2], [0.45, -0.45], [1.2, -0.45], [1.2, 0.45], [0.45, 0.45],
    [0.45, 1.2], [-0.45, 1.2], [-0.45, 0.45], [-1.2, 0.45]]];
function mark(kind, x, y, r, paint) {
  const points = POLYGONS[kind % POLYGONS.length];
  return points ? shape("polygon", {...paint, points: points.map(p => `${(x + r * p[0]).toFixed(2)},${(y + r * p[1]).toFixed(2)}`).join(" ")})
                : shape("circle", {...paint, cx: x.toFixed(2), cy: y.toFixed(2), r});
}

// ---- numbers ------------------------------------------------------------------------------------

const percent = v => (100 * v).toFixed(1);
const signed = v => (v > 0 ? "+" : "") + percent(v);
const interval = (v, f) => `${f(v.value)} [${percent(v.low)}, ${percent(v.high)}]`;
function bytes(v) {
  const unit = v >= 1 << 20 ? [1 << 20, "MiB"] : v >= 1024 ? [1024, "KiB"] : [1, "B"];
  const n = v / unit[0];
  return `${n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1)} ${unit[1]}`;
}
function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough * 0.999);
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step) list.push(+v.toPrecision(12));
  return list;
}

// ---- score against bytes: one kind of figure on both pages ------------------------------------------

// Bytes that all facts of an image of plain scenes need, at most: tests/unit/eval/scenes/test_scene_code.c.
const FACTS_BYTES = 62;
function noRanking(exactBytes, scenes) {
  const times = Number((exactBytes / FACTS_BYTES).toPrecision(2));
  const facts = scenes === "rich" ? "" : `Everything the questions ask about an image fits in ${FACTS_BYTES} bytes, ${times} times less than exact holds. `;
  return `This is not a ranking of methods. ${facts}The page shows what each policy costs one checkpoint.`;
}

// How the evaluation was run.
const ASKED = {kept: "Dialogs are kept conversations", whole: "Each turn of a dialog sends the whole chat",
  held: "every token, including the first, is computed from the compressed KV", prefill: "the first token is computed in the prefill, from the full KV"};

// How many pixels a figure may be wide, so that its text is as large as the page's.
const roomFor = most => Math.max(280, Math.min(most, document.documentElement.clientWidth - 32));
function onResize(draw) {
  let width = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    draw();
  });
}

// Shares of what exact holds grow to the right, by factors; all figures of a page have the same range.
function rangeOf(shares) {
  return {least: Math.min(1, ...shares) / 1.2, most: Math.max(1, ...shares) * 1.2};
}
function frame(w, h, margin, range, bottom, top) {
  const f = {w, h, x0: margin.left, x1: w - margin.right, y0: margin.top, y1: h - margin.bottom, bottom, top, ...range};
  f.x = v => f.x0 + Math.log(v / f.least) / Math.log(f.most / f.least) * (f.x1 - f.x0);
  f.y = v => f.y1 - (v - bottom) / (top - bottom) * (f.y1 - f.y0);
  return f;
}

// Halves, as many as there is room for.
function shareTicks(f) {
  const half = (f.x1 - f.x0) * Math.LN2 / Math.log(f.most / f.least), every = Math.max(1, Math.ceil(32 / half)), list = [];
  for (let k = 0; 2 ** -k >= f.least; k += every) list.push({v: 2 ** -k, label: k ? `1/${2 ** k}` : "1"});
  return {list, apart: half * every};
}
// whole: bytes that exact holds; below: what stands under the axis.
function axes(svg, f, whole, below, most) {
  for (const v of ticks(f.bottom, f.top, most))
    svg.append(shape("line", {class: "grid", x1: f.x0, x2: f.x1, y1: f.y(v), y2: f.y(v)}),
               shape("text", {x: f.x0 - 6, y: f.y(v) + 4, "text-anchor": "end"}, +(100 * v).toFixed(1)));
  const {list, apart} = shareTicks(f);
  for (const t of list) {
    svg.append(shape("line", {class: "grid", x1: f.x(t.v), x2: f.x(t.v), y1: f.y0, y2: f.y1}),
               shape("text", {x: f.x(t.v), y: f.y1 + 15, "text-anchor": "middle"}, t.label));
    if (below && apart >= 58) svg.append(shape("text", {x: f.x(t.v), y: f.y1 + 29, "text-anchor": "middle"}, bytes(whole * t.v)));
  }
  svg.append(shape("line", {class: "axis", x1: f.x0, x2: f.x1, y1: f.y1, y2: f.y1}));
  if (below) svg.append(shape("text", {x: (f.x0 + f.x1) / 2, y: f.h - 5, "text-anchor": "middle"}, below));
}

// Points {x, y, low, high}: from the smallest up, those whose interval lies above that of the one before. What
// intervals do not separate makes no step (eval/tables.py has the same rule).
function front(points) {
  const best = [];
  for (const p of [...points].sort((a, b) => a.x - b.x || b.low - a.low))
    if (!best.length || p.low > best[best.length - 1].high) best.push(p);
  return best;
}
// From one point of the front to the next; one alone is no line.
function staircase(best, f) {
  if (best.length < 2) return [];
  let path = `M${f.x(best[0].x)},${f.y(best[0].y)}`;
  for (const p of best.slice(1)) path += `H${f.x(p.x)}V${f.y(p.y)}`;
  return [shape("path", {class: "front", d: path})];
}

// Names {text, points: [{at, y}]} in the order in which they take places: each beside one of its points, where it
// covers no point and no other name. Gives back those that found no room.
const LETTER = 6.2;
function nameThem(svg, f, names, marks) {
  const taken = marks.map(p => [p.at - 4, p.y - 4, p.at + 4, p.y + 4]);
  const free = b => b[0] > f.x0 && b[2] < f.w - 1 && b[1] > f.y0 - 6 && b[3] < f.y1 &&
    !taken.some(t => b[0] < t[2] && b[2] > t[0] && b[1] < t[3] && b[3] > t[1]);
  const lost = [];
  for (const name of names) {
    const place = placeFor(name, free);
    if (!place) { lost.push(name.text); continue; }
    const {p, side, up, box} = place;
    taken.push(box);
    svg.append(shape("line", {class: "leader", x1: p.at, y1: p.y, x2: p.at + 5 * side, y2: p.y + up - 2}),
      shape("text", {class: name.bold ? "named" : "name", x: p.at + 6 * side, y: p.y + up, "text-anchor": side < 0 ? "end" : "start"}, name.text));
  }
  return lost;
}
function placeFor(name, free) {
  const wide = LETTER * name.text.length;
  for (const up of [-8, 14, 3, -20, 26, -32, 38, -44, 50])
    for (const p of name.points)
      for (const side of [1, -1]) {
        const box = side < 0 ? [p.at - 6 - wide, p.y + up - 9, p.at - 6, p.y + up + 3] : [p.at + 6, p.y + up - 9, p.at + 6 + wide, p.y + up + 3];
        if (free(box)) return {p, side, up, box};
      }
  return null;
}

// Ticks 1, 2, 5, 10, 20, ... between two numbers above 0, each second one left out where they are many.
function logTicks(low, high, most) {
  const list = [];
  for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++)
    for (const m of [1, 2, 5]) {
      const v = +(m * 10 ** e).toPrecision(6);
      if (v >= low && v <= high) list.push(v);
    }
  const every = Math.ceil(list.length / most);
  return list.filter((_, i) => i % every === 0);
}
