// Shows which tokens of the images a layer holds: dropped ones are darkened.
import { element } from "./dom.js";

const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// Draws a picture as a layer holds it; heads: how many heads hold each token. Returns the number of tokens in
// its grids, and how many are held.
function draw(canvas, picture, spans, heads, full) {
  const context = canvas.getContext("2d");
  // In some families the whole image has tokens besides those of its tiles, before or after them: a place is
  // as clear as the clearest token there.
  const shade = new OffscreenCanvas(canvas.width, canvas.height);
  const dark = shade.getContext("2d");
  let at = 0, inGrid = 0, held = 0;
  dark.fillStyle = "rgb(0 0 0 / 85%)";
  dark.fillRect(0, 0, canvas.width, canvas.height);
  dark.globalCompositeOperation = "destination-out";
  for (const span of spans) {
    let i = at + (span.class_token ? 1 : 0);
    const columns = span.w - (span.newline_column ? 1 : 0);
    for (let y = 0; y < span.h; y++, i += span.w)
      for (let x = 0; x < columns; x++) {
        const share = (heads[i + x] ?? 0) / full;
        const left = Math.round(span.left + (x * span.width) / columns), right = Math.round(span.left + ((x + 1) * span.width) / columns);
        const top = Math.round(span.top + (y * span.height) / span.h), bottom = Math.round(span.top + ((y + 1) * span.height) / span.h);
        inGrid++;
        if (!share) continue;
        held++;
        dark.fillStyle = `rgb(0 0 0 / ${Math.min(1, share)})`;
        dark.fillRect(left, top, right - left, bottom - top);
      }
    at += span.n;
  }
  context.drawImage(picture, 0, 0);
  context.drawImage(shade, 0, 0);
  return [inGrid, held];
}

// The layer to show first: the first one that has dropped some of what it could hold, or else all of it.
function openingLayer(held, all) {
  const some = held.findIndex((n) => n > 0 && n < all);
  return Math.max(0, some >= 0 ? some : held.findIndex((n) => n < all));
}

// Returns a figure with a slider of layers. kept: Report.kept. layouts: each picture's spans from /fovea/layout.
export function overlay(pictures, layouts, kept, n_kv, n_layer) {
  const counts = layouts.map((spans) => spans.reduce((sum, s) => sum + s.n, 0));
  const n = counts.reduce((sum, c) => sum + c, 0);
  if (kept.some((k) => atob(k.heads).length !== n))
    return element("p", {}, "This policy merged image tokens before the first layer, so they have no place in the image.");
  const groups = kept.map((k) => ({ first: k.layer ?? 0, n: k.n_layer ?? 1, heads: decode(k.heads) }));
  const canvases = pictures.map((p) => element("canvas", { width: p.naturalWidth, height: p.naturalHeight, role: "img", ariaLabel: p.alt }));
  const caption = element("figcaption");
  const full = Math.min(n_kv, 255);
  const at = (layer) => groups.find((g) => layer >= g.first && layer < g.first + g.n)?.heads ?? new Uint8Array();
  const held = Array.from({ length: n_layer }, (_, layer) => at(layer).reduce((sum, h) => sum + h, 0));
  const slider = element("input", { type: "range", min: 0, max: n_layer - 1, ariaLabel: "Layer" });
  slider.value = openingLayer(held, n * full);

  function show() {
    const layer = Number(slider.value);
    const heads = at(layer);
    let from = 0, inGrid = 0, kept = 0;
    canvases.forEach((canvas, i) => {
      const [all, some] = draw(canvas, pictures[i], layouts[i], heads.subarray(from, from + counts[i]), full);
      from += counts[i];
      inGrid += all;
      kept += some;
    });
    caption.textContent = `layer ${layer} (0 to ${n_layer - 1}): ${kept} of ${inGrid} image tokens kept`;
    slider.ariaValueText = caption.textContent;
  }
  slider.oninput = show;
  show();
  return element("figure", { className: "overlay" }, element("div", {}, ...canvases), slider, caption);
}
