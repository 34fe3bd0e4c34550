// What the page does beyond what it says: the viewer with its controls, and tables that sort and search.

const SHORT = 20; // more components than this are keys without names

/** "1 division", "3 divisions" */
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

/** The viewer with its controls, in the section of the cortex. */
class Cortex {
  constructor(data, array) {
    this.data = data;
    this.cortex = data.cortex;
    this.array = array;
    this.decoded = new Map();
    this.perComponent = {}; // where measures have maps of their own, "component" is the first one's, "component:NAME" another's
    for (const layer of this.cortex.layers)
      if (/^(component|error)(:|$)/.test(layer.key)) (this.perComponent[layer.key] ??= []).push(layer);
    this.components = this.perComponent.component;
    this.others = this.cortex.layers.filter((layer) => !(layer.key in this.perComponent));
    const several = this.components.length > 1;
    this.state = { component: 0, layer: several ? "parcellation" : "component", cuts: {}, shared: several, ramp: "viridis" };
    this.stage = el("div", { class: "stage" });
    this.bar = el("div", { class: "bar", id: "bar" });
    const root = document.getElementById("viewer");
    this.makeInputs();
    root.append(...this.hints(), ...this.controls(), this.stage, this.bar);
    try {
      this.viewer = new Viewer(this.stage, this.cortex, array);
    } catch (problem) {
      root.replaceChildren(el("p", { class: "notice" }, `${problem.message}, so the maps cannot be turned; pictures of all components are below.`));
      return;
    }
    document.getElementById("cortex").classList.add("live"); // the picture for paper leaves the screen
    this.viewer.describe = (point) => this.describe(point);
    this.listen();
    this.update();
  }

  hints() {
    return [
      el("p", { class: "about screen fine" }, "Drag to rotate all views together, click and scroll (or + and \u2212) to zoom, point to read a value. Arrow keys choose the component; Shift with arrow keys rotates."),
      el("p", { class: "about screen coarse" }, "Swipe sideways to rotate all views together, tap to read a value."),
    ];
  }

  makeInputs() {
    const option = (value, text) => el("option", { value }, text);
    const groups = Object.entries(this.perComponent).map(([key, [first]]) => option(key, first.group));
    this.layers = el("select", { id: "layer" }, ...groups, ...this.others.map((layer) => option(layer.key, layer.name)));
    const titles = this.components.map((layer, j) => option(j, `${this.data.titles[j]} (${percent(layer.share)} unique)`));
    this.picker = el("select", { id: "component", "aria-label": "Component" }, ...titles);
    this.shapes = el("select", { id: "surface" }, ...this.cortex.shapes.map((name, i) => option(i, name)));
    const ramps = Object.keys(this.cortex.ramps).filter((name) => name !== "diverging");
    this.ramps = el("select", { id: "colours" }, ...ramps.map((name) => option(name, name)));
    this.threshold = el("input", { id: "threshold", type: "range", min: 0, max: 1, step: 0.005 });
    this.reading = el("output", { for: "threshold" });
    this.shared = el("input", { id: "shared", type: "checkbox", checked: this.state.shared });
    this.edges = el("input", { id: "edges", type: "checkbox" });
  }

  controls() {
    const label = (text, ...nodes) => el("label", {}, text, ...nodes);
    const button = (text, title, act) => {
      const name = /\w/.test(text) ? `${text}: ${title}` : title;
      return el("button", { type: "button", title, "aria-label": name, onclick: act }, text);
    };
    const look = (text, title, yaw, pitch) => button(text, title, () => this.viewer.look(yaw, pitch));
    const back = button("\u25c2", "Previous component", () => this.step(-1));
    const forward = button("\u25b8", "Next component", () => this.step(1));
    const views = el("span", {},
      look("sides", "Lateral and medial views", 0, 0),
      look("front, back", "Views from the front and the back", -Math.PI / 2, 0),
      look("top", "Views from above", 0, Math.PI / 2),
      look("bottom", "Views from below", 0, -Math.PI / 2),
      button("+", "Zoom in", () => this.viewer.zoomBy(1.25)),
      button("\u2212", "Zoom out", () => this.viewer.zoomBy(0.8)));
    return [
      el("div", { class: "controls" },
        label("Layer", this.layers),
        el("span", { class: "picker" }, back, this.picker, forward),
        label("Surface", this.shapes),
        label("Colours", this.ramps)),
      el("div", { class: "controls" },
        label("Hide below", this.threshold, this.reading),
        label("", this.shared, "one scale for all components"),
        label("", this.edges, "active faces"),
        views),
    ];
  }

  layerNow() {
    const { layer, component } = this.state;
    return this.perComponent[layer]?.[component] ?? this.others.find(({ key }) => key === layer);
  }

  /** Values of a layer over all vertices, and which of them are known. */
  decode(layer) {
    if (this.decoded.has(layer)) return this.decoded.get(layer);
    const codes = this.array(layer.values);
    const values = new Float32Array(codes.length);
    const known = new Float32Array(codes.length);
    const unit = (layer.to - layer.from) / 65534;
    for (let i = 0; i < codes.length; i++) {
      known[i] = layer.labels || codes[i] ? 1 : 0;
      values[i] = layer.labels ? codes[i] : codes[i] ? layer.from + unit * (codes[i] - 1) : 0;
    }
    // the parcellation is masked as the components are
    if (layer.labels) known.set(this.decode(this.perComponent[layer.key.replace("parcellation", "component")][0]).known);
    this.decoded.set(layer, { values, known });
    return this.decoded.get(layer);
  }

  scaleOf(layer) {
    const high = layer.key in this.perComponent && this.state.shared ? layer.shared : layer.high;
    return layer.signed ? [-high, high] : [layer.low, high];
  }

  cutOf(layer) {
    return this.state.cuts[layer.key] ?? layer.cut ?? 0;
  }

  paintOf(layer) {
    const decoded = this.decode(layer);
    if (layer.labels) return { ...decoded, mode: 2, low: 0, high: 1, cut: 0, ramp: this.array(this.cortex.distinct), marks: true };
    const [low, high] = this.scaleOf(layer);
    const part = this.cutOf(layer);
    const from = Math.max(0, low);
    const cut = part > 0 ? from + part * (high - from) : -1e30;
    const ramp = this.array(this.cortex.ramps[layer.signed ? "diverging" : this.state.ramp]);
    return { ...decoded, mode: layer.steps ? 1 : 0, low, high, cut, ramp };
  }

  update() {
    const layer = this.layerNow();
    const paint = this.paintOf(layer);
    const part = this.cutOf(layer);
    const ofComponent = layer.key in this.perComponent;
    this.viewer.setPaint(paint);
    if (!layer.labels) this.threshold.value = part;
    const limit = layer.steps ? plural(Math.ceil(paint.cut), "division") : `${show(paint.cut, 3)} ${layer.units}`;
    this.reading.textContent = layer.labels || part <= 0 ? "nothing" : limit;
    this.threshold.disabled = Boolean(layer.labels);
    this.ramps.disabled = Boolean(layer.labels || layer.signed);
    this.shared.disabled = !ofComponent || this.components.length === 1;
    this.picker.disabled = !ofComponent;
    this.picker.value = this.state.component;
    this.layers.value = this.state.layer;
    const name = layer.labels ? "Parts of the cortex, numbered by component" : `${layer.name}, on the cortex`;
    this.viewer.canvas.setAttribute("aria-label", `${name}. Arrow keys choose the component; with Shift they rotate the views.`);
    this.drawBar(layer, paint);
  }

  drawBar(layer, paint) {
    const grey = this.data.on === "parcels" ? "; dark grey: no region" : this.data.masked ? "; dark grey: masked" : "";
    if (layer.labels) {
      const keys = this.components.map((_, j) => this.key(j, paint.ramp));
      const text = `Each vertex has the colour and number of its largest component${grey}. Choose one to see its map.`;
      this.bar.replaceChildren(el("div", { class: "keys" }, ...keys), el("p", { class: "about" }, text));
      return;
    }
    const [low, high] = this.scaleOf(layer);
    const outside = layer.to > high * 1.0001 || layer.from < low - 1e-9;
    const text = `Grey: hidden by the threshold${grey}${outside ? "; values beyond the ends have the colour of the end" : ""}.`;
    this.bar.replaceChildren(this.colourBar(layer, paint), el("div", { class: "about" }, text));
  }

  /** The button of a component beside the parcellation. */
  key(j, colours) {
    const swatch = el("i", { "aria-hidden": "true" });
    swatch.style.background = `rgb(${colours.slice(3 * j, 3 * j + 3).join(",")})`;
    const text = this.components.length > SHORT ? String(j + 1) : this.data.titles[j];
    const title = `Show the map of component ${j + 1}`;
    return el("button", { type: "button", class: "key", title, onclick: () => this.choose(j) }, swatch, text);
  }

  /** The colours of a layer as they are painted, with numbers and units. */
  colourBar(layer, { low, high, cut, ramp }) {
    const units = layer.scale ?? layer.units ? ` (${layer.scale ?? layer.units})` : "";
    const label = `Colours from ${show(low, 3)} to ${show(high, 3)}${units}`;
    const strip = el("canvas", { width: 256, height: 1, role: "img", "aria-label": label });
    const context = strip.getContext("2d");
    const image = context.createImageData(256, 1);
    const n = high - low + 1;
    for (let i = 0; i < 256; i++) {
      // whole numbers have nothing between them
      const at = layer.steps ? Math.round((Math.min(n - 1, Math.floor((n * i) / 256)) * 255) / (n - 1)) : i;
      const hidden = Math.abs(low + ((high - low) * at) / 255) < cut;
      const colour = hidden ? [204, 204, 204] : ramp.subarray(3 * at, 3 * at + 3);
      image.data.set([...colour, 255], 4 * i);
    }
    context.putImageData(image, 0, 0);
    const marks = el("div", { class: "ticks" });
    for (const value of ticks(low, high, layer.steps ? Math.min(8, high - low) : 5)) {
      const mark = el("span", {}, show(value, 3));
      mark.style.left = `${layer.steps ? (100 * (value - low + 0.5)) / n : (100 * (value - low)) / (high - low)}%`;
      marks.append(mark);
    }
    return el("div", { class: "scale" }, el("div", { class: "name" }, `${layer.name}${units}`), strip, marks);
  }

  /** What the tooltip says of a vertex. */
  describe({ half, number, index }) {
    const layer = this.layerNow();
    const { values, known } = this.decode(layer);
    const lines = [`${half.named ? `${half.side} ` : ""}vertex ${number}`];
    const { regions } = this.cortex;
    if (regions) {
      const numbers = this.array(regions.numbers[this.viewer.halves.indexOf(half)]);
      lines.push(regions.names[numbers[index - half.first]] || "no region");
    }
    const value = values[index];
    if (!known[index]) lines.push(this.data.on === "parcels" ? "no value" : "masked");
    else if (layer.labels) lines.push(value ? this.data.titles[value - 1] : "no component");
    else if (layer.steps) lines.push(plural(value, "division"));
    else lines.push(`${show(value, 5)} ${layer.units}`.trim());
    return lines.join("\n");
  }

  choose(component) {
    this.state.component = component;
    if (!(this.state.layer in this.perComponent)) this.state.layer = "component";
    this.update();
  }

  step(by) {
    const n = this.components.length;
    const { layer, component } = this.state;
    this.choose(layer in this.perComponent ? (component + by + n) % n : component);
  }

  listen() {
    const on = (node, event, change) => node.addEventListener(event, () => { change(node); this.update(); });
    on(this.layers, "change", ({ value }) => { this.state.layer = value; });
    on(this.picker, "change", ({ value }) => { this.choose(Number(value)); });
    on(this.shapes, "change", ({ value }) => { this.viewer.setShape(Number(value)); });
    on(this.ramps, "change", ({ value }) => { this.state.ramp = value; });
    on(this.threshold, "input", ({ value }) => { this.state.cuts[this.layerNow().key] = Number(value); });
    on(this.shared, "change", ({ checked }) => { this.state.shared = checked; });
    on(this.edges, "change", ({ checked }) => { this.viewer.lines = checked; });
    for (const button of document.querySelectorAll("button[data-component]"))
      button.addEventListener("click", () => {
        this.choose(Number(button.dataset.component));
        document.getElementById("cortex").scrollIntoView();
      });
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.closest("select, input, textarea, .scroll, .chart, pre")) return; // which use arrow keys themselves
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (arrow && event.shiftKey) this.viewer.turn(-arrow[0] * 0.12, arrow[1] * 0.12);
    else if (arrow && arrow[0]) this.step(arrow[0]);
    else if (event.key === "+" || event.key === "=") this.viewer.zoomBy(1.25);
    else if (event.key === "-") this.viewer.zoomBy(0.8);
    else if (event.key === "0") this.viewer.look(0, 0);
    else return;
    event.preventDefault();
  }
}

/** Heads of a table sort its rows: numbers by size, words by the alphabet, cells without a number last. */
function makeSortable(table) {
  const body = table.tBodies[0];
  const text = (row, column) => row.cells[column].textContent;
  const numberIn = (words) => parseFloat(words.replace("\u2212", "-").replace(/^[^\d-]*/, ""));
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const sort = () => {
      const sign = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const compare = (a, b) => {
        const [first, second] = [text(a, column), text(b, column)];
        if (!head.classList.contains("number")) return -sign * first.localeCompare(second);
        const [x, y] = [numberIn(first), numberIn(second)];
        return Number.isNaN(x) - Number.isNaN(y) || sign * (x - y);
      };
      body.append(...[...body.rows].sort(compare));
    };
    const name = head.textContent;
    head.replaceChildren(el("button", { type: "button", class: "sort", title: `Sort by ${name}`, onclick: sort }, name));
  });
}

/** A field that leaves the rows of a table whose first cell contains a text. */
function makeSearchable(box, number) {
  const rows = [...box.querySelectorAll("tbody tr")];
  const id = `search-${number}`;
  const field = el("input", { type: "search", id, autocomplete: "off", spellcheck: "false" });
  const status = el("span", { role: "status" });
  field.addEventListener("input", () => {
    const words = field.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(words);
    status.textContent = words ? plural(rows.filter((row) => !row.hidden).length, "row") : "";
  });
  box.before(el("div", { class: "search screen" }, el("label", { for: id }, box.dataset.search), field, status));
}

/** The text of the methods, to the clipboard. */
async function copyMethods() {
  const text = document.getElementById("methods");
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(text);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  document.getElementById("copied").textContent = " Copied.";
}

async function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.documentElement.classList.add("scripted");
  document.querySelectorAll(".scroll table").forEach(makeSortable);
  document.querySelectorAll(".scroll[data-search]").forEach(makeSearchable);
  document.getElementById("copy")?.addEventListener("click", copyMethods);
  if (data.cortex) new Cortex(data, await unpack(data.block));
  document.documentElement.dataset.ready = "yes";
}

main().catch((problem) => {
  document.querySelector("main").prepend(el("p", { class: "notice" }, `Some of this page does not work: ${problem.message}.`));
  throw problem;
});
