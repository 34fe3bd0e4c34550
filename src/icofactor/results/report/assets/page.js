// The page itself: header, controls of the cortex, panels in order.

const plural = (n, word) => `${many(n)} ${word}${n === 1 ? "" : "s"}`;

function header(data) {
  const s = data.summary, known = s.verdict;
  document.getElementById("title").textContent = s.title;
  const sides = s.hemisphere === "both" ? "both hemispheres of " : s.hemisphere ? `${s.hemisphere} hemisphere of ` : "";
  const where = data.panels.regions ? `${plural(data.panels.regions.names.length, "region")} of ` : sides;
  document.getElementById("lead").textContent = `${s.scans || plural(s.subjects, "subject")}, ${where}${s.mesh}.${s.harmonized ? ` Harmonized over ${s.harmonized}.` : ""}${s.simulated ? " The data are simulated." : ""}`;
  document.getElementById("verdict").append(el("p", {}, el("strong", {}, known.headline)), el("ul", {}, ...known.lines.map((text) => el("li", {}, text))), el("p", {}, s.meaning));
  const cards = [
    [s.scans ? "scans fitted" : "people", many(s.subjects)],
    ["components fitted", s.components],
    ["components recommended", known.recommended],
    ...(known.stability ? [["stability over resampled people", known.stability]] : []),
    ["of the differences between people explained", percent(s.explained, 0)],
    ["adjusted for", s.adjusted.join(", ") || "nothing"],
  ];
  document.getElementById("cards").append(...cards.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))));
  document.getElementById("verdict").append(...[tableLinks(["tables/summary.tsv", "stability.tsv"], data.tables)].filter(Boolean));
  if (s.measures) {
    const m = s.measures, rows = m.names.map((name, i) => [name, percent(m.explained[i]), percent(m.variance[i]), show(m.weight[i], 3)]);
    document.getElementById("cards").after(el("section", { id: "measures" }, el("h2", {}, "Measures"), el("p", { class: "about" }, m.about),
      table(["measure", "its variance explained", "its share of the variance fitted", "weight"], rows, [1, 2, 3]),
      ...[tableLinks(["tables/measures.tsv"], data.tables)].filter(Boolean)));
  }
  if (data.warnings.length)
    document.getElementById("warnings").append(
      el("div", { class: "notice", role: "note" }, el("strong", {}, "Before you read on"), el("ul", {}, ...data.warnings.map((text) => el("li", {}, text)))));
}

// The page below the brain, from top to bottom. A part has a name and panels; a panel has an id, the tables that hold its numbers, and
// `draw`, which gives a section, or null where there is nothing to show. To add a panel, add a line.
const PARTS = [
  ["Each component", [
    { id: "components", tables: ["desc-icofactor_components.tsv", "desc-icofactor_loadings.tsv", "desc-icofactor_dseg.tsv", "tables/correlations.tsv", "stability.tsv", "associations.tsv"], draw: (page) => componentsPanel(page) },
    { id: "bars", tables: ["*_regions.tsv"], draw: ({ p, array }) => regionsPanel(p, array) },
    { id: "regions", tables: ["atlas_overlap.tsv"], draw: ({ data, p }) => overlapPanel(data.overlap, p) },
  ]],
  ["Components and people", [
    { id: "loadings", tables: ["desc-icofactor_loadings.tsv", "loadings_se.tsv", "tables/subjects.tsv"], draw: ({ data, p, array, ramp, choose }) => loadingsPanel(data, p, array, ramp, choose) },
    { id: "subjects", tables: ["tables/subjects.tsv"], draw: ({ p, array }) => residualPanel(p, array) },
    { id: "unusual", tables: ["tables/unusual.tsv", "tables/summary.tsv"], draw: ({ p }) => unusualPanel(p) },
    { id: "participants", tables: ["tables/correlations.tsv", "tables/groups.tsv", "desc-icofactor_participants.tsv", "desc-icofactor_loadings.tsv"], draw: ({ p, array, choose }) => participantsPanel(p, array, choose) },
    { id: "associations", tables: ["associations.tsv", "associations_expected.tsv", "associations_adjusted.tsv", "tables/summary.tsv"], draw: ({ data, p, array, choose }) => associationsPanel(data.associations, p, array, choose) },
    { id: "behaviour", tables: ["pls.tsv", "pls_variables.tsv"], draw: ({ data }) => latentPanel(data.latent) },
    { id: "norm", tables: ["normative.tsv", "tables/normative_summary.tsv"], draw: ({ data, p, array }) => normPanel(data.norm, p, array) },
  ]],
  ["How far to trust the components", [
    { id: "variance", tables: ["desc-icofactor_components.tsv", "tables/summary.tsv"], draw: ({ data, p }) => variancePanel(p, data.summary) },
    { id: "selection", tables: ["selection.tsv"], draw: ({ data }) => selectionPanel(data.selection) },
    { id: "stability", tables: ["stability.tsv"], draw: ({ data, p }) => stabilityPanel(data.stability, p) },
    { id: "similarity", tables: ["tables/similarity.tsv"], draw: ({ p, array }) => matricesPanel(p, array) },
  ]],
  ["How it was made", [
    { id: "methods", tables: [], draw: ({ data }) => methodsPanel(data) },
    { id: "provenance", tables: ["tables/settings.tsv"], draw: ({ data }) => provenancePanel(data) },
  ]],
  ["How this was computed", [
    { id: "recurrence", tables: ["desc-icofactor_components.tsv", "tables/summary.tsv"], draw: ({ data, p }) => recurrencePanel(p, data.summary) },
    { id: "convergence", tables: ["tables/convergence.tsv"], draw: ({ p }) => convergencePanel(p) },
    { id: "resources", tables: ["tables/resources.tsv"], draw: ({ data }) => runPanel(data) },
    { id: "sparsity", tables: ["tables/sparsity.tsv", "tables/summary.tsv"], draw: ({ p }) => sparsityPanel(p) },
  ]],
];

/** Links to the tables beside the page, those that are there; "*_regions.tsv" stands for all with that end. */
function tableLinks(names, tables) {
  const there = names.flatMap((name) => (name.startsWith("*") ? Object.keys(tables).filter((one) => one.endsWith(name.slice(1))) : name in tables ? [name] : []));
  const links = there.map((name) => el("a", { href: tables[name] }, name));
  return links.length ? el("p", { class: "files" }, links.length > 1 ? "Tables: " : "Table: ", ...links.flatMap((link, i) => (i ? [", ", link] : [link]))) : null;
}

/** All parts with their panels, and the contents list. */
function drawParts(page) {
  const measures = document.getElementById("measures"), first = [...(measures ? [["#measures", "Measures"]] : []), ["#cortex", document.querySelector("#cortex h2").textContent]];
  const contents = first.map(([href, name]) => el("li", {}, el("a", { href }, name))), parts = [];
  PARTS.forEach(([name, panels], number) => {
    const drawn = panels.map(({ id, tables, draw }) => {
      const node = draw(page), title = node && node.querySelector("h3");
      if (!node) return null;
      title.id = `at-${id}`;
      for (const [key, value] of [["id", `panel-${id}`], ["aria-labelledby", title.id]]) node.setAttribute(key, value);
      node.append(...[tableLinks(tables, page.data.tables)].filter(Boolean));
      return node;
    }).filter(Boolean);
    if (!drawn.length) return;
    const head = el("h2", { id: `part-${number + 1}` }, name);
    parts.push(el("div", { class: "part", role: "region", "aria-labelledby": head.id }, head, el("div", { class: "grid" }, ...drawn)));
    contents.push(el("li", {}, el("a", { href: `#${head.id}` }, name),
      el("ul", {}, ...drawn.map((node) => el("li", {}, el("a", { href: `#${node.id}` }, node.querySelector("h3").textContent))))));
  });
  document.getElementById("panels").replaceChildren(...parts);
  document.getElementById("contents").replaceChildren(el("ul", {}, ...contents));
}

/** The cortex with its controls; gives a function that chooses a component, and one that draws small pictures of all of them, a row per measure. */
function cortexSection(data, array) {
  const root = document.getElementById("cortex"), c = data.cortex, none = { choose: () => {}, pictures: () => [], scales: () => [] };
  root.append(el("h2", { id: "at-cortex" }, data.panels.n_components > 1 ? "The components on the cortex" : "The component on the cortex"));
  if (c.missing) {
    root.append(el("p", { class: "notice" }, data.panels.regions ? `${c.missing}. The components are drawn as bars below.` : `The maps cannot be drawn: ${c.missing}`));
    return none;
  }
  const perComponent = {}; // where measures have maps of their own, "component" is the first one's, "component:NAME" another's
  for (const layer of c.layers) if (/^(component|error)(:|$)/.test(layer.key)) (perComponent[layer.key] ??= []).push(layer);
  const components = perComponent.component;
  const others = c.layers.filter((layer) => !(layer.key in perComponent));
  const state = { component: 0, layer: components.length > 1 ? "parcellation" : "component", cuts: {}, shared: components.length > 1, ramp: "viridis" };
  const layerNow = () => (perComponent[state.layer] ? perComponent[state.layer][state.component] : others.find((layer) => layer.key === state.layer));

  const option = (value, text) => el("option", { value }, text);
  const layers = el("select", { id: "layer" }, ...Object.entries(perComponent).map(([key, [first]]) => option(key, first.group)), ...others.map((layer) => option(layer.key, layer.name)));
  const picker = el("select", { id: "component", "aria-label": "Component" }, ...components.map((layer, j) => option(j, `${nameOf(data, j)} (${percent(layer.share)} unique)`)));
  const shapes = el("select", { id: "surface" }, ...c.shapes.map((name, i) => option(i, name)));
  const ramps = el("select", { id: "colours" }, ...Object.keys(c.ramps).filter((name) => name !== "diverging").map((name) => option(name, name)));
  const threshold = el("input", { id: "threshold", type: "range", min: 0, max: 1, step: 0.005 });
  const reading = el("output", { for: "threshold" });
  const shared = el("input", { id: "shared", type: "checkbox", checked: state.shared });
  const edges = el("input", { id: "edges", type: "checkbox" });
  const step = (by) => choose(state.layer in perComponent ? (state.component + by + components.length) % components.length : state.component);
  const button = (text, title, act) => el("button", { type: "button", title, "aria-label": /\w/.test(text) ? `${text}: ${title}` : title, onclick: act }, text);
  const label = (text, ...nodes) => el("label", {}, text, ...nodes);
  const stage = el("div", { class: "stage" });
  const bar = el("div", { class: "bar", id: "bar" });

  root.append(
    el("p", { class: "about screen fine" }, "Drag to rotate all views together, click and scroll (or + and \u2212) to zoom, point to read a value. Arrow keys choose the component; Shift with arrow keys rotates."),
    el("p", { class: "about screen coarse" }, "Swipe sideways to rotate all views together, tap to read a value."),
    ...(c.note ? [el("p", { class: "about" }, c.note)] : []),
    el("div", { class: "controls" },
      label("Layer", layers), el("span", { class: "picker" }, button("\u25c2", "Previous component", () => step(-1)), picker, button("\u25b8", "Next component", () => step(1))),
      label("Surface", shapes), label("Colours", ramps)),
    el("div", { class: "controls" },
      label("Hide below", threshold, reading), label("", shared, "one scale for all components"), label("", edges, "active faces"),
      el("span", {}, button("sides", "Lateral and medial views", () => viewer.look(0, 0)), button("front, back", "Views from the front and the back", () => viewer.look(-Math.PI / 2, 0)),
        button("top", "Views from above", () => viewer.look(0, Math.PI / 2)), button("bottom", "Views from below", () => viewer.look(0, -Math.PI / 2)),
        button("+", "Zoom in", () => viewer.zoomBy(1.25)), button("\u2212", "Zoom out", () => viewer.zoomBy(0.8)))),
    stage, bar);

  let viewer;
  try {
    viewer = new Viewer(stage, c, array);
  } catch (problem) {
    stage.replaceWith(el("p", { class: "notice" }, `${problem.message}, so the maps are not drawn here. The folder figures/ next to this page contains them.`));
    bar.remove();
    return none;
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
        const of = layer.key.replace("parcellation", "component"), used = decode(perComponent[of][0]).known; // masked alike
        known.set(used);
      }
      decoded.set(layer, { values, known });
    }
    return decoded.get(layer);
  };
  const scaleOf = (layer, shared = state.shared) => {
    const high = layer.key in perComponent && shared ? layer.shared : layer.high;
    return layer.signed ? [-high, high] : [layer.low, high];
  };
  const cutOf = (layer) => state.cuts[layer.key] ?? layer.cut ?? 0;

  /** As the controls have it, or as the page opens. */
  const paintOf = (layer, first = false) => {
    if (layer.labels) return { ...decode(layer), mode: 2, low: 0, high: 1, cut: 0, ramp: array(c.distinct), marks: true };
    const [low, high] = first ? scaleOf(layer, components.length > 1) : scaleOf(layer), part = first ? layer.cut ?? 0 : cutOf(layer);
    const from = Math.max(0, low), ramp = layer.signed ? "diverging" : first ? "viridis" : state.ramp;
    return { ...decode(layer), mode: layer.steps ? 1 : 0, low, high, cut: part > 0 ? from + part * (high - from) : -1e30, ramp: array(c.ramps[ramp]) };
  };

  function update() {
    const layer = layerNow(), paint = paintOf(layer), part = cutOf(layer);
    viewer.setPaint(paint);
    if (!layer.labels) threshold.value = part;
    reading.textContent = layer.labels || part <= 0 ? "nothing" : layer.steps ? plural(Math.ceil(paint.cut), "division") : `${show(paint.cut, 3)} ${layer.units}`;
    for (const node of [threshold, ramps]) node.disabled = Boolean(layer.labels) || (node === ramps && Boolean(layer.signed));
    shared.disabled = !(layer.key in perComponent) || components.length === 1;
    picker.disabled = !(layer.key in perComponent);
    picker.value = state.component;
    layers.value = state.layer;
    viewer.canvas.setAttribute("aria-label", `${layer.labels ? "Parts of the cortex, numbered by component" : layer.key in perComponent ? `${layer.name} on the cortex` : `${layer.name}, on the cortex`}. Arrow keys choose the component; with Shift they rotate the views.`);
    drawBar(layer);
  }

  function drawBar(layer) {
    bar.replaceChildren();
    if (layer.labels) {
      bar.append(el("div", { class: "keys" }, ...components.map((_, j) => el("button", { type: "button", class: "key", title: `Show the map of component ${j + 1}`, onclick: () => choose(j) },
        swatch(data, array, j), components.length > MANY ? String(j + 1) : nameOf(data, j)))),
        el("p", { class: "about" }, `Each place has the colour and number of its largest component${data.summary.masked ? "; dark grey: masked" : data.summary.on === "parcels" ? "; dark grey: no region" : ""}. Choose one to see its map.`));
      return;
    }
    const beyond = layer.to > scaleOf(layer)[1] * 1.0001 || layer.from < scaleOf(layer)[0] - 1e-9 ? "; values beyond the ends have the colour of the end" : "";
    bar.append(colourBar(layer, viewer.paint, layer.name),
      el("div", { class: "about" }, `Grey: hidden by the threshold${data.summary.masked ? "; dark grey: masked" : data.summary.on === "parcels" ? "; dark grey: no region" : ""}${beyond}.`));
  }

  /** The colours of a layer as they are painted, with numbers and units. */
  function colourBar(layer, { low, high, cut, ramp }, title) {
    const name = layer.scale ?? layer.units, units = name ? ` (${name})` : "";
    const strip = el("canvas", { width: 256, height: 1, role: "img", "aria-label": `Colours from ${show(low, 3)} to ${show(high, 3)}${units}` }), context = strip.getContext("2d"), image = context.createImageData(256, 1);
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
    return el("div", { class: "scale" }, el("div", { class: "name" }, `${title}${units}`), strip, marks);
  }

  viewer.describe = ({ half, number, index }) => {
    const layer = layerNow(), { values, known } = decode(layer);
    const lines = [`${half.named ? `${half.side} ` : ""}vertex ${number}`];
    if (c.regions) {
      const which = viewer.halves.indexOf(half), name = c.regions.names[array(c.regions.numbers[which])[index - half.first]];
      lines.push(name || "no region");
    }
    if (!known[index]) lines.push(data.summary.on === "parcels" ? "no value" : "masked");
    else if (layer.labels) lines.push(values[index] ? nameOf(data, values[index] - 1) : "no component");
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
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, input, textarea, .scroll, pre")) return; // which use arrow keys themselves
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (arrow && event.shiftKey) viewer.turn(-arrow[0] * 0.12, arrow[1] * 0.12);
    else if (arrow && arrow[0]) step(arrow[0]);
    else if (event.key === "+" || event.key === "=") viewer.zoomBy(1.25);
    else if (event.key === "-") viewer.zoomBy(0.8);
    else if (event.key === "0") viewer.look(0, 0);
    else return;
    event.preventDefault();
  });
  /** One canvas per component, with all views; two columns where that is little room. They are drawn when they come into sight. */
  const made = new Map();
  const pictures = (room) => {
    const width = Math.min(room, 220 * viewer.panes.length);
    if (made.has(width)) return made.get(width);
    const columns = width < 480 ? 2 : viewer.panes.length, each = Object.entries(perComponent).flatMap(([key, own]) => (key.startsWith("component") ? [own] : []));
    const found = viewer.frames(each.length * components.length, width, columns), views = viewer.panes.map((pane) => pane.title).join(", "), layers = new Map();
    const nodes = components.map((_, j) => each.flatMap((own, measure) => {
      const canvas = found[measure * components.length + j], of = own[j].measure;
      canvas.setAttribute("aria-label", `Map of ${nameOf(data, j)}${of ? `, ${of}` : ""}: ${views}`);
      layers.set(canvas, own[j]);
      return of ? [el("p", { class: "about" }, of), canvas] : [canvas];
    }));
    later.draw(found, (some) => viewer.fillFrames(some.map((canvas) => [canvas, paintOf(layers.get(canvas), true)]), width, columns));
    made.set(width, nodes);
    return nodes;
  };
  /** The scales of those pictures, one per measure that has maps of its own. */
  const scales = () => Object.entries(perComponent).flatMap(([key, [first]]) => (key.startsWith("component") ? [colourBar(first, paintOf(first, true), `Maps of components${first.measure ? `, ${first.measure}` : ""}`)] : []));
  update();
  return { choose, pictures, scales };
}

/** Draws nodes when they come near the window, when nothing else is to do, and all before printing. */
const later = {
  waiting: new Map(), // node → what draws a list of them
  draw(nodes, act) {
    this.observer ??= new IntersectionObserver((seen) => this.now(seen.filter((one) => one.isIntersecting).map((one) => one.target)), { rootMargin: "300px" });
    for (const node of nodes) { this.waiting.set(node, act); this.observer.observe(node); }
    this.idle();
  },
  now(nodes = [...this.waiting.keys()]) {
    const lists = new Map();
    for (const node of nodes.filter((one) => this.waiting.has(one))) {
      const act = this.waiting.get(node);
      this.observer.unobserve(node);
      this.waiting.delete(node);
      lists.set(act, [...(lists.get(act) ?? []), node]);
    }
    for (const [act, own] of lists) act(own);
    if (!this.waiting.size) document.documentElement.dataset.complete = "yes";
  },
  idle() {
    const rest = (act) => (window.requestIdleCallback ? requestIdleCallback(act, { timeout: 2000 }) : setTimeout(act, 200)); // older Safaris
    rest(() => { this.now([...this.waiting.keys()].slice(0, 1)); if (this.waiting.size) this.idle(); });
  },
};
addEventListener("beforeprint", () => later.now());

async function main() {
  const data = JSON.parse(document.getElementById("data").textContent), done = (stage) => performance.mark(stage); // for those who measure
  header(data);
  done("parsed");
  const array = await unpack(data.block);
  done("unpacked");
  const cortex = cortexSection(data, array);
  done("cortex");
  const page = { data, p: data.panels, array, ramp: array(data.cortex.ramps[data.panels.signed ? "diverging" : "viridis"]), ...cortex };
  drawParts(page);
  matchMedia("screen and (max-width: 820px)").addEventListener("change", () => drawParts(page)); // text keeps its size
  document.documentElement.dataset.ready = "yes";
  done("ready");
  later.idle(); // says at once that all is drawn, where nothing waits
}

main().catch((problem) => {
  document.querySelector("main").prepend(el("p", { class: "notice" }, `This page could not be drawn: ${problem.message}. The folder figures/ next to it contains the same panels.`));
  throw problem;
});
