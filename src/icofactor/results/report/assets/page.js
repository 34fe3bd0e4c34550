// The page itself: header, controls of the cortex, panels in order.

const plural = (n, word) => `${many(n)} ${word}${n === 1 ? "" : "s"}`;

function header(data) {
  const s = data.summary;
  document.getElementById("title").textContent = s.title;
  const where = s.hemisphere === "both" ? "both hemispheres, " : s.hemisphere ? `${s.hemisphere} hemisphere, ` : "";
  document.getElementById("lead").textContent =
    `${s.scans || plural(s.subjects, "subject")}, ${where}${s.mesh}, ${many(s.sites)} ${s.on}${s.masked ? ` in use (${many(s.masked)} masked)` : ""}; ` +
    `method ${s.method}${{ mean: " of deviations from the mean map", zscore: " of z-scores" }[s.center] ?? ""}${s.rules === "paper" ? ", the paper's rules" : ""}.${s.harmonized ? ` Harmonized over ${s.harmonized}.` : ""}${s.adjusted.length ? ` Adjusted for ${s.adjusted.join(", ")}.` : ""}${s.simulated ? " The data are simulated." : ""}`;
  const trust = [s.meaning, s.trust, s.agreement].filter(Boolean);
  document.getElementById("trust").append(...trust.map((text) => el("p", {}, text)));
  const cards = [
    ["explained between-subject variance", percent(s.explained)],
    ["of ‖X‖², mean map included", percent(s.explained_X)],
    ["components", s.components],
    [s.scans ? "scans fitted" : "subjects", many(s.subjects)],
    ["updates", many(s.updates)],
    [s.alone ? "regions fitted" : "active faces", many(s.faces)],
  ];
  document.getElementById("cards").append(...cards.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
  if (data.warnings.length)
    document.getElementById("warnings").append(
      el("div", { class: "notice", role: "note" }, el("strong", {}, "Before you read on"), el("ul", {}, ...data.warnings.map((text) => el("li", {}, text)))));
}

/** The cortex with its controls; gives a function that chooses a component. */
function cortexSection(data, array) {
  const root = document.getElementById("cortex"), c = data.cortex;
  root.append(el("h2", {}, "Maps on the cortex"));
  if (c.missing) {
    root.append(el("p", { class: "notice" }, data.panels.regions ? `${c.missing}. The components are drawn as bars below.` : `The maps cannot be drawn: ${c.missing}`));
    return () => {};
  }
  const components = c.layers.filter((layer) => layer.key === "component");
  const errors = c.layers.filter((layer) => layer.key === "error");
  const others = c.layers.filter((layer) => layer.key !== "component" && layer.key !== "error");
  const state = { component: 0, layer: "component", cuts: {}, shared: components.length > 1, ramp: "viridis" };
  const perComponent = { component: components, error: errors };
  const layerNow = () => (perComponent[state.layer] ? perComponent[state.layer][state.component] : others.find((layer) => layer.key === state.layer));

  const option = (value, text) => el("option", { value }, text);
  const layers = el("select", { id: "layer" }, option("component", "Component"), ...(errors.length ? [option("error", "Standard error of the component")] : []), ...others.map((layer) => option(layer.key, layer.name)));
  const picker = el("select", { id: "component" }, ...components.map((layer, j) => option(j, `${layer.name} (${percent(layer.share)} unique)`)));
  const shapes = el("select", { id: "surface" }, ...c.shapes.map((name, i) => option(i, name)));
  const ramps = el("select", { id: "colours" }, ...Object.keys(c.ramps).filter((name) => name !== "diverging").map((name) => option(name, name)));
  const threshold = el("input", { id: "threshold", type: "range", min: 0, max: 1, step: 0.005 });
  const reading = el("output", { for: "threshold" });
  const shared = el("input", { id: "shared", type: "checkbox", checked: state.shared });
  const edges = el("input", { id: "edges", type: "checkbox" });
  const step = (by) => choose((state.component + by + components.length) % components.length);
  const button = (text, title, act) => el("button", { type: "button", title, "aria-label": title, onclick: act }, text);
  const label = (text, ...nodes) => el("label", {}, text, ...nodes);
  const stage = el("div", { class: "stage" });
  const bar = el("div", { class: "bar", id: "bar" });

  root.append(
    el("p", { class: "about screen" }, "Drag to turn all views together, click and scroll (or + and \u2212) to zoom, point to read a value. Arrow keys choose the component; Shift with arrows turns."),
    ...(c.note ? [el("p", { class: "about" }, c.note)] : []),
    el("div", { class: "controls" },
      label("Layer", layers), el("span", {}, button("\u25c2", "Previous component", () => step(-1)), " ", picker, " ", button("\u25b8", "Next component", () => step(1))),
      label("Surface", shapes), label("Colours", ramps)),
    el("div", { class: "controls" },
      label("Hide below", threshold, reading), label("", shared, "one scale for all components"), label("", edges, "active faces"),
      el("span", {}, button("sides", "Lateral and medial views", () => viewer.look(0, 0)), " ", button("front, back", "Views from the front and the back", () => viewer.look(-Math.PI / 2, 0)),
        " ", button("top", "Views from above", () => viewer.look(0, Math.PI / 2)), " ", button("bottom", "Views from below", () => viewer.look(0, -Math.PI / 2)),
        " ", button("+", "Zoom in", () => viewer.zoomBy(1.25)), " ", button("\u2212", "Zoom out", () => viewer.zoomBy(0.8)))),
    stage, bar);

  let viewer;
  try {
    viewer = new Viewer(stage, c, array);
  } catch (problem) {
    stage.replaceWith(el("p", { class: "notice" }, `${problem.message}, so the maps are not drawn here. The folder figures/ beside this page holds them.`));
    bar.remove();
    return () => {};
  }

  const decoded = new Map();
  const decode = (layer) => {
    if (!decoded.has(layer)) {
      const codes = array(layer.values), values = new Float32Array(codes.length), known = new Float32Array(codes.length);
      const unit = (layer.to - layer.from) / 65534;
      for (let i = 0; i < codes.length; i++) {
        known[i] = layer.labels || codes[i] ? 1 : 0;
        values[i] = layer.labels ? codes[i] : codes[i] ? layer.from + unit * (codes[i] - 1) : 0;
      }
      if (layer.labels) {
        const used = decode(components[0]).known; // masked alike
        known.set(used);
      }
      decoded.set(layer, { values, known });
    }
    return decoded.get(layer);
  };
  const scaleOf = (layer) => {
    const high = layer.key in perComponent && state.shared ? layer.shared : layer.high;
    return layer.signed ? [-high, high] : [layer.low, high];
  };
  const cutOf = (layer) => state.cuts[layer.key] ?? layer.cut ?? 0;

  function update() {
    const layer = layerNow();
    if (layer.labels) {
      viewer.setPaint({ ...decode(layer), mode: 2, low: 0, high: 1, cut: 0, ramp: array(c.distinct) });
    } else {
      const [low, high] = scaleOf(layer), part = cutOf(layer), from = Math.max(0, low);
      const cut = part > 0 ? from + part * (high - from) : -Infinity;
      const ramp = layer.signed ? "diverging" : state.ramp;
      viewer.setPaint({ ...decode(layer), mode: layer.steps ? 1 : 0, low, high, cut: Math.max(cut, -1e30), ramp: array(c.ramps[ramp]) });
      threshold.value = part;
      reading.textContent = part > 0 ? (layer.steps ? plural(Math.ceil(cut), "division") : `${show(cut, 3)} ${layer.units}`) : "nothing";
    }
    for (const node of [threshold, ramps]) node.disabled = Boolean(layer.labels) || (node === ramps && Boolean(layer.signed));
    if (layer.labels) reading.textContent = "nothing";
    shared.disabled = !(layer.key in perComponent) || components.length === 1;
    picker.disabled = !(layer.key in perComponent);
    picker.value = state.component;
    layers.value = state.layer;
    drawBar(layer);
  }

  function drawBar(layer) {
    bar.replaceChildren();
    if (layer.labels) {
      const colours = array(c.distinct);
      bar.append(el("div", { class: "keys" }, ...components.map((one, j) => {
        const swatch = el("i");
        swatch.style.background = `rgb(${colours.slice(3 * j, 3 * j + 3).join(",")})`;
        return el("span", { class: "key" }, swatch, components.length > MANY ? String(j + 1) : one.name);
      })));
      return;
    }
    const [low, high] = scaleOf(layer), { low: _l, high: _h, cut, ramp } = viewer.paint;
    const strip = el("canvas", { width: 256, height: 1 }), context = strip.getContext("2d"), image = context.createImageData(256, 1);
    for (let i = 0; i < 256; i++) {
      const at = layer.steps ? Math.round(Math.min(high - low, Math.floor(((high - low + 1) * i) / 256)) * 255 / (high - low)) : i; // whole numbers have nothing between them
      const value = low + ((high - low) * at) / 255, hidden = Math.abs(value) < cut;
      for (let channel = 0; channel < 3; channel++) image.data[4 * i + channel] = hidden ? 204 : ramp[3 * at + channel];
      image.data[4 * i + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const marks = el("div", { class: "ticks" });
    for (const value of layer.steps ? ticks(low, high, Math.min(8, high - low)) : ticks(low, high, 5)) {
      const mark = el("span", {}, show(value, 3));
      mark.style.left = `${layer.steps ? (100 * (value - low + 0.5)) / (high - low + 1) : (100 * (value - low)) / (high - low)}%`;
      marks.append(mark);
    }
    const beyond = layer.to > high * 1.0001 || layer.from < low - 1e-9 ? `; values beyond the ends, up to ${show(Math.abs(layer.from) > layer.to ? layer.from : layer.to, 3)}, have the end's colour` : "";
    const name = layer.scale ?? layer.units, units = name ? ` (${name})` : "";
    bar.append(el("div", {}, el("div", { class: "name" }, `${layer.name}${units}`), strip, marks),
      el("div", { class: "about" }, `Grey: hidden by the threshold${data.summary.masked ? "; dark grey: masked" : data.summary.on === "parcels" ? "; dark grey: no region" : ""}${beyond}.`));
  }

  viewer.describe = ({ half, number, index }) => {
    const layer = layerNow(), { values, known } = decode(layer);
    const lines = [`${half.named ? `${half.side} ` : ""}vertex ${number}`];
    if (c.regions) {
      const which = viewer.halves.indexOf(half), name = c.regions.names[array(c.regions.numbers[which])[index - half.first]];
      lines.push(name || "no region");
    }
    if (!known[index]) lines.push(data.summary.on === "parcels" ? "no value" : "masked");
    else if (layer.labels) lines.push(values[index] ? `Component ${values[index]}` : "no component");
    else lines.push(layer.steps ? plural(values[index], "division") : `${show(values[index], 5)}${layer.units ? ` ${layer.units}` : ""}`);
    return lines.join("\n");
  };

  function choose(component) {
    state.component = component;
    if (!(state.layer in perComponent)) state.layer = "component";
    update();
  }
  layers.addEventListener("change", () => { state.layer = layers.value; update(); });
  picker.addEventListener("change", () => choose(Number(picker.value)));
  shapes.addEventListener("change", () => viewer.setShape(Number(shapes.value)));
  ramps.addEventListener("change", () => { state.ramp = ramps.value; update(); });
  threshold.addEventListener("input", () => { state.cuts[layerNow().key] = Number(threshold.value); update(); });
  shared.addEventListener("change", () => { state.shared = shared.checked; update(); });
  edges.addEventListener("change", () => { viewer.lines = edges.checked; viewer.draw(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || ["SELECT", "INPUT", "TEXTAREA"].includes(event.target.tagName)) return;
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (arrow && event.shiftKey) viewer.turn(-arrow[0] * 0.12, arrow[1] * 0.12);
    else if (arrow && arrow[0]) step(arrow[0]);
    else if (event.key === "+" || event.key === "=") viewer.zoomBy(1.25);
    else if (event.key === "-") viewer.zoomBy(0.8);
    else if (event.key === "0") viewer.look(0, 0);
    else return;
    event.preventDefault();
  });
  update();
  return choose;
}

async function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  header(data);
  const array = await unpack(data.block);
  const choose = cortexSection(data, array);
  document.getElementById("panels").append(...panels(data, array, choose).filter(Boolean));
  document.documentElement.dataset.ready = "yes";
}

main().catch((problem) => {
  document.querySelector("main").prepend(el("p", { class: "notice" }, `This page could not be drawn: ${problem.message}. The folder figures/ beside it holds the same panels.`));
  throw problem;
});
