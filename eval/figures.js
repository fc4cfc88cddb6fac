// What the pages of an exam draw with: page.html and compare.html, which have it written in.

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
