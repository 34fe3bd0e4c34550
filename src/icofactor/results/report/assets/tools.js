"use strict";
// Small things that all parts of the page use. Words of the data only ever become text nodes, never markup.

/** An HTML element with attributes and children; strings become text. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A number with four significant digits and a real minus sign. */
function show(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "n/a";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const rounded = Number(value.toPrecision(digits));
  const text = size >= 1e6 || size < 1e-4 ? rounded.toExponential() : String(rounded);
  return text.replace("e+", "e").replaceAll("-", "\u2212");
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** Round numbers between low and high, about n of them. */
function ticks(low, high, n = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / n, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(10)));
  return found;
}

/** The tooltip, beside the pointer and inside the window. */
const tip = {
  show(text, event) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 6);
    const top = event.clientY + 18 + box.offsetHeight > innerHeight ? event.clientY - box.offsetHeight - 10 : event.clientY + 18;
    box.style.left = `${Math.max(4, left)}px`;
    box.style.top = `${Math.max(4, top)}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

/** The arrays of the page: base64 and deflate undone, and each found by its ticket. */
async function unpack(text) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); // the former is newer, and quicker
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = await new Response(stream).arrayBuffer();
  const kinds = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
  return (ticket) => new kinds[ticket.type](bytes, ticket.at, ticket.n);
}

// Triangles and what is on them

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

/** Label → some of the vertices that have it, for every label but 0. */
function partsOf(labels) {
  const found = new Map();
  labels.forEach((label, i) => { if (label) found.has(label) ? found.get(label).push(i) : found.set(label, [i]); });
  for (const [label, all] of found) found.set(label, all.filter((_, i) => i % Math.ceil(all.length / 200) === 0));
  return found;
}

/** Values of vertices, `size` each, repeated for every corner of every triangle. */
function atCorners(values, triangles, size) {
  const out = new Float32Array(size * triangles.length);
  for (let i = 0; i < triangles.length; i++) for (let j = 0; j < size; j++) out[size * i + j] = values[size * triangles[i] + j];
  return out;
}

/** Unit normals of the vertices of a closed mesh. */
function normalsOf(p, triangles) {
  const out = new Float32Array(p.length);
  for (let t = 0; t < triangles.length; t += 3) {
    const [a, b, c] = [3 * triangles[t], 3 * triangles[t + 1], 3 * triangles[t + 2]];
    const n = cross([p[b] - p[a], p[b + 1] - p[a + 1], p[b + 2] - p[a + 2]], [p[c] - p[a], p[c + 1] - p[a + 1], p[c + 2] - p[a + 2]]);
    for (const at of [a, b, c]) for (let axis = 0; axis < 3; axis++) out[at + axis] += n[axis];
  }
  for (let i = 0; i < out.length; i += 3) {
    const length = Math.hypot(out[i], out[i + 1], out[i + 2]) || 1;
    for (let axis = 0; axis < 3; axis++) out[i + axis] /= length;
  }
  return out;
}

/** Both ends of every segment on a shape: a point is a weighted mean of three vertices. */
function linePositions(lines, positions) {
  const points = new Float32Array(lines.corners.length);
  for (let i = 0; i < lines.corners.length / 3; i++) {
    const w0 = lines.weights[2 * i] / 255, w1 = lines.weights[2 * i + 1] / 255, weights = [w0, w1, Math.max(0, 1 - w0 - w1)];
    for (let corner = 0; corner < 3; corner++)
      for (let axis = 0; axis < 3; axis++) points[3 * i + axis] += weights[corner] * positions[3 * lines.corners[3 * i + corner] + axis];
  }
  const out = new Float32Array(3 * lines.segments.length);
  lines.segments.forEach((point, i) => out.set(points.subarray(3 * point, 3 * point + 3), 3 * i));
  return out;
}
