// The panels below the cortex, as SVG made here from the page's numbers.

const MANY = 20; // components that need more room
const MOST_POINTS = 2000, CELL = 5; // of more points a chart shows the density, in cells of so many pixels
const MOST_ROWS = 200; // of a table on the page; the file has all
const INK = { blue: "#0b6ea8", orange: "#d55e00", band: "#0b6ea8", grey: "#8a939e" };

function section(title, about, nodes, wide = false) {
  return el("section", wide ? { class: "wide" } : {}, el("h3", {}, title), about ? el("p", { class: "about" }, about) : null, ...nodes);
}

/** Pixels that a panel offers at least, so that text in charts keeps its size on a phone. */
const room = () => Math.max(260, document.getElementById("panels").clientWidth - 24);

/** An SVG with axes: x and y are {low, high, log, name, ticks?}; gives the node and functions to place points. */
function frame(x, y, { width = 520, height = 300, left = 70, bottom = 42, right = 12, top = 10 } = {}) {
  width = Math.min(width, room());
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y.name} against ${x.name}` });
  const place = (axis, from, to) => {
    const f = axis.log ? Math.log10 : (value) => value, low = f(axis.low), span = f(axis.high) - low || 1;
    return (value) => from + ((f(value) - low) / span) * (to - from);
  };
  const px = place(x, left, width - right), py = place(y, height - bottom, top);
  for (const value of y.ticks ?? (y.log ? logTicks(y.low, y.high) : ticks(y.low, y.high)))
    node.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: py(value), y2: py(value) }),
      svg("text", { class: "soft", x: left - 6, y: py(value) + 4, "text-anchor": "end" }, show(value, 3)));
  for (const value of x.ticks ?? ticks(x.low, x.high, 6))
    node.append(svg("text", { class: "soft", x: px(value), y: height - bottom + 16, "text-anchor": "middle" }, x.text ? x.text(value) : show(value, 4)));
  node.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.name),
    svg("text", { x: 0, y: 0, transform: `translate(13 ${(height - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.name));
  return { node, px, py };
}

/** Component 3, with the name that an atlas proposes. */
const nameOf = (data, j) => data.panels.titles[j];
const called = (p, j) => p.titles[j].replace("C", "c"); // within a sentence

/** The colour of a component's parcel. */
function swatch(data, array, j) {
  const node = el("i", { "aria-hidden": "true" });
  if (data.cortex.distinct) node.style.background = `rgb(${array(data.cortex.distinct).slice(3 * j, 3 * j + 3).join(",")})`;
  return node;
}

/** Least and largest of any number of values. */
const span = (values) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
const dense = (n) => (n > MOST_POINTS ? " Darker: more people; the tables have each of them." : "");

/** A circle with its text for each of `rows`, at the pixels x(row), y(row); of very many the cells that hold them, darker where they are more. */
function dots(node, rows, x, y, text, { r = rows.length > 400 ? 2 : 3.4, colour = INK.blue, opacity = () => 0.62 } = {}) {
  if (rows.length <= MOST_POINTS) {
    for (const i of rows) node.append(hint(svg("circle", { cx: x(i), cy: y(i), r, fill: colour, "fill-opacity": opacity(i) }), text(i)));
    return;
  }
  const counts = new Map();
  for (const i of rows) {
    const key = Math.floor(x(i) / CELL) + 10000 * Math.floor(y(i) / CELL);
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = span([...counts.values()])[1];
  for (const [key, count] of counts)
    node.append(hint(svg("rect", { class: "cell", x: CELL * (key % 10000), y: CELL * Math.floor(key / 10000), width: CELL, height: CELL, fill: colour, "fill-opacity": (0.1 + 0.9 * Math.sqrt(count / most)).toFixed(3) }), `${many(count)} here`));
}

const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const padded = (low, high, part = 0.05) => (high > low ? [low - part * (high - low), high + part * (high - low)] : [low - 1, high + 1]);

function convergencePanel(p) {
  const c = p.convergence, first = 1;
  const values = [...c.objective.slice(first), ...c.band[4].slice(first), ...c.band[0].slice(first)].filter((v) => v > 0);
  if (!values.length) return null;
  const log = c.objective.every((v) => v === null || v > 0);
  const last = Math.max(c.updates.at(-1), c.band_updates.at(-1), 2);
  let low = Math.min(...values), high = Math.max(...values);
  if (log && high / low < 1.05) high = low * 1.05;
  const decades = [1, 10, 100, 1000, 10000, 100000].filter((v) => v <= last);
  const { node, px, py } = frame({ low: 1, high: last, log: true, name: "update (logarithmic)", ticks: decades.length > 1 ? decades : ticks(1, last) },
    { low: log ? low / 1.02 : padded(low, high)[0], high: log ? high * 1.02 : padded(low, high)[1], log, name: "objective" });
  const at = c.band_updates.map((update, i) => i).filter((i) => c.band_updates[i] >= 1 && c.band[0][i] !== null && c.band[4][i] !== null);
  const area = (lower, upper, opacity) => svg("path", { fill: INK.band, opacity, d: `${path([...at.map((i) => [px(c.band_updates[i]), py(c.band[upper][i])]), ...[...at].reverse().map((i) => [px(c.band_updates[i]), py(c.band[lower][i])])])}Z` });
  if (c.n_starts > 1 && at.length) node.append(area(0, 4, 0.16), area(1, 3, 0.28));
  for (const [i, update] of c.divisions.entries()) if (update >= 1)
    node.append(hint(svg("line", { x1: px(update), x2: px(update), y1: 10, y2: 258, stroke: INK.orange, "stroke-dasharray": "2 3", "stroke-width": 1.4 }), `Refinement after update ${update}\n${c.n_columns[i]} active faces from there on`));
  node.append(svg("path", { fill: "none", stroke: INK.blue, "stroke-width": 2, d: path(c.updates.map((u, i) => [u, c.objective[i]]).filter(([u, v]) => u >= 1 && v !== null).map(([u, v]) => [px(u), py(v)])) }));
  const parts = [`Line: the objective of the best start, ${show(c.objective.at(-1), 6)} at its end.`];
  if (c.n_starts > 1) parts.push(`Bands: quartiles and extremes of the ${c.n_starts} starts that were run.`);
  if (c.divisions.length) parts.push("Dashed: refinement (faces were divided).");
  return section("Convergence", parts.join(" "), [node]);
}

/** Bars side by side for every component: series are {name, values, colour}. */
function bars(p, series, name, text, options = {}) {
  const k = p.n_components, high = options.high ?? Math.max(...series.flatMap((s) => s.values), 1e-12);
  const step = Math.ceil(k / (options.marks ?? 25)), marks = Array.from({ length: k }, (_, j) => j).filter((j) => (j + 1) % step === 0);
  const { node, px, py } = frame({ low: -0.5, high: k - 0.5, name: "component", ticks: marks, text: (j) => String(j + 1) }, { low: 0, high: high * 1.06, name, ...(options.axis ?? {}) }, options.size);
  const slot = (px(1) - px(0)) * 0.78;
  series.forEach(({ values, colour, name: label }, i) => values.forEach((value, j) => {
    const wide = slot / series.length;
    node.append(hint(svg("rect", { x: px(j) - slot / 2 + i * wide, width: Math.max(0.8, wide - 1), y: py(value), height: Math.max(0, py(0) - py(value)), fill: colour }), `${p.titles[j]}\n${label}: ${text(value)}`));
  }));
  return node;
}

const keys = (series) => el("p", { class: "about" }, ...series.map(({ name, colour }) => {
  const swatch = el("i");
  swatch.style.background = colour;
  return el("span", { class: "key" }, swatch, name);
}));

/** How many people have which loading on a component. */
function histogram(p, L, j) {
  const values = p.subjects.map((_, i) => L[i * p.n_components + j]), n = 14, [least, most] = span(values), [low, high] = padded(least, most, 0.001);
  const counts = new Array(n).fill(0);
  for (const value of values) counts[Math.min(n - 1, Math.floor((n * (value - low)) / (high - low)))]++;
  const { node, px, py } = frame({ low, high, name: "loading", ticks: ticks(low, high, 4) }, { low: 0, high: Math.max(...counts) * 1.05, name: p.rows.split(" ")[0], ticks: ticks(0, Math.max(...counts), 2).filter(Number.isInteger) }, { width: 260, height: 130, left: 44 });
  const step = (high - low) / n, side = (px(high) - px(low)) / n;
  counts.forEach((count, i) => node.append(hint(svg("rect", { x: px(low + i * step), width: Math.max(0.5, side - 1), y: py(count), height: Math.max(0, py(0) - py(count)), fill: INK.blue }), `loading ${show(low + i * step, 3)} to ${show(low + (i + 1) * step, 3)}\n${many(count)} ${p.rows}`)));
  node.setAttribute("aria-label", `Loadings of component ${j + 1}: ${show(least, 3)} to ${show(most, 3)}`);
  return node;
}

/** What goes with a component's loadings: [text, whether p < 0.05], the clearest first. */
function relations({ data, p }, j) {
  const t = data.associations && data.associations.tests;
  const found = t ? [...t.term.keys()].filter((i) => t.component[i] === j && t.p[i] !== null).map((i) => [t.p[i], `${t.term[i]}${ofMeasure(t, i)}: ${t.statistic[i]} = ${show(t.value[i], 3)}`])
    : p.columns.map((column) => [column.p[j], `${column.column}: ${column.labels ? "η²" : "r"} = ${fixed(column.strength[j], 2)}`]);
  return found.sort((a, b) => a[0] - b[0]).slice(0, 4).map(([chance, text]) => [`${text}, ${probability(chance)}`, chance < 0.05]);
}

/** Map, name, size, trust, loadings and associations of every component. */
function componentsPanel(page) {
  const { data, p, array, choose, pictures, scales } = page, L = array(p.loadings), k = p.n_components, drawn = pictures(Math.min(640, room()));
  const where = data.cortex.missing && p.regions ? "regions" : "cortex"; // those of a table without an atlas lie nowhere
  const fact = (name, value) => (value === null || value === undefined ? [] : [el("div", {}, el("dt", {}, name), el("dd", {}, value))]);
  const cards = Array.from({ length: k }, (_, j) => {
    const reached = p.recurrence ? p.recurrence[j] : null, related = relations(page, j);
    return el("article", { class: "component", "aria-labelledby": `component-${j + 1}` },
      el("h4", { id: `component-${j + 1}` }, data.cortex.distinct ? swatch(data, array, j) : null, nameOf(data, j)),
      drawn[j] ? el("div", { class: "views" }, ...drawn[j]) : null,
      el("div", { class: "facts" },
        el("dl", {}, ...fact("unique variance", percent(p.components.unique[j])), ...fact(`of the ${where}`, percent(p.components.extent[j], 0)),
          ...fact("of other starts on the same people reach it", reached !== null && reached < 0.5 ? percent(reached, 0) : null), ...fact("stability in resamples", data.stability && fixed(data.stability.stability[j], 2))),
        related.length ? el("ul", {}, ...related.map(([text, clear]) => el("li", {}, clear ? el("strong", {}, text) : text))) : null,
        drawn[j] ? el("button", { type: "button", class: "screen", "aria-label": `Show on the large brain: ${nameOf(data, j)}`, onclick: () => { choose(j); document.getElementById("cortex").scrollIntoView(); } }, "Show on the large brain") : null),
      el("div", { class: "spread" }, histogram(p, L, j)));
  });
  const theory = data.associations && !data.associations.n_permutations;
  const tests = data.associations ? "Tests by icofactor associate" : p.columns.length ? "Relations to columns of the participants" : "";
  return section("Maps, loadings and associations", `${data.cortex.distinct ? "One scale of colours for all maps. " : ""}Numbers follow the variance that each component carries alone. Unique variance: what its loadings add to those of all others (see Explained variance). Of the ${where}: where the map exceeds 5 % of its largest value.${tests ? ` ${tests}: the clearest first, bold where p < 0.05, ${theory ? "not corrected" : `corrected over ${data.associations ? data.associations.over : "components"}`}.` : ""}`, [...(data.cortex.distinct ? [el("div", { class: "bar" }, ...scales())] : []), ...cards], true);
}

function variancePanel(p, summary) {
  const series = [...(p.alone ? [{ name: "alone", values: p.components.alone, colour: INK.blue }] : []), { name: "unique", values: p.components.unique, colour: INK.orange }];
  const text = `All components together explain ${percent(summary.explained)} of the between-subject variance${summary.explained_X === summary.explained ? "" : ` (and ${percent(summary.explained_X)} of ‖X‖², most of which is the mean map)`}. ` +
    `${p.alone ? "Alone: the variance of a component's map times its loadings; components overlap, so these do not add up. " : ""}Unique: what the loadings of a component add to those of all others in a linear regression of the maps on the loadings, which explains ${percent(p.linear)} with all of them${p.by_chance === null ? "" : `; random numbers would add about ${percent(p.by_chance)}`}.`;
  return section("Explained variance", text, [keys(series), bars(p, series, "share of between-subject variance", (v) => percent(v))]);
}

/** Which components other random starts on the same people reach. */
function recurrencePanel(p, summary) {
  if (!p.recurrence) return null;
  const about = "Share of the other random starts on the same people that reach the component (correlation of maps at least 0.9), among those that fit as well (objective within 0.1 % of the best). A component that they do not reach is not determined by the data.", title = "Do other random starts reach the same components?";
  if (p.recurrence.some((v) => v === null)) return section(title, about, [el("p", {}, summary.trust)]);
  const axis = "reached by other random starts on the same people (%)", series = [{ name: axis, values: p.recurrence.map((v) => 100 * v), colour: "#009e73" }];
  return section(title, about, [el("p", {}, summary.trust), el("p", { class: "about" }, `Vertical axis: ${axis}.`),
    bars(p, series, "reached by (%)", (v) => percent(v / 100, 0), { high: 100 })]);
}

function sparsityPanel(p) {
  const one = (name, values, colour, format) => el("div", {}, bars(p, [{ name, values, colour }], name, format, { size: { width: 380, height: 230, left: 62 }, marks: 13 }));
  return section("Sparsity", `Sums of absolute values in the coordinates of the fit: ‖B‖₁ = ${show(p.l1[0])}, ‖C‖₁ = ${show(p.l1[1])}. Extent: share of the sites where a map exceeds 5 % of its largest value.`,
    [el("div", { class: "row" }, one("‖B‖₁", p.components.l1_B, INK.blue, (v) => show(v)), one("‖C‖₁", p.components.l1_C, INK.orange, (v) => show(v)), one("extent", p.components.extent, "#009e73", (v) => percent(v)))], true);
}

/** Every component in every region, in the order of the table, and the regions where it is largest. */
function regionsPanel(p, array) {
  if (!p.regions) return null;
  const { names, each } = p.regions, n = names.length, wide = Math.min(1040, room()), high = 74, step = wide / n;
  const scales = each.map(({ measure, values: ticket, units }) => {
    const values = array(ticket), sizes = Array.from(values, Math.abs), top = Math.max(...sizes, 1e-12), low = values.some((v) => v < 0) ? -top : 0;
    return { of: measure ? `, ${measure}` : "", units, values, sizes, top, y: (v) => 4 + ((top - v) / (top - low)) * (high - 8) };
  });
  const rows = Array.from({ length: p.n_components }, (_, j) => scales.map(({ of, units, values, sizes, y }) => {
    const node = svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `${p.titles[j]}${of} in ${n} regions` });
    for (let i = 0; i < n; i++) {
      const v = values[j * n + i];
      node.append(hint(svg("rect", { x: i * step, width: Math.max(0.6, step - (step > 3 ? 1 : 0)), y: Math.min(y(v), y(0)), height: Math.max(0.3, Math.abs(y(v) - y(0))), fill: v < 0 ? INK.orange : INK.blue }), `${names[i]}\n${called(p, j)}: ${show(v, 4)}${units ? ` ${units}` : ""}`));
    }
    node.append(svg("line", { class: "axis", x1: 0, x2: wide, y1: y(0), y2: y(0) }));
    const largest = Array.from({ length: n }, (_, i) => i).sort((a, b) => sizes[j * n + b] - sizes[j * n + a]).slice(0, 5);
    return el("div", {}, el("p", {}, el("strong", {}, `${p.titles[j]}${of}`), `: ${largest.map((i) => names[i]).join(", ")}`), node);
  })).flat();
  const ends = scales.map(({ of, units, top }) => `${show(top, 3)}${units ? ` ${units}` : ""}${of}`).join("; ");
  return section("Components in regions", `One bar per region, in the order of the table, on one scale (up to ${ends}); the five largest are named. Point at a bar to read it.`, rows, true);
}

/** Colour of t in 0..1, or −1..1 with two hues; light near zero, so that dark text stays readable on pale cells. */
function shade(t) {
  const mix = (to) => `rgb(${to.map((c) => Math.round(255 + (c - 255) * Math.min(1, Math.abs(t)))).join(",")})`;
  return t < 0 ? mix([33, 102, 172]) : mix([202, 84, 8]);
}

function matrix(p, values, name, about) {
  const k = p.n_components, side = 280, edge = 26, cell = (side - edge) / k;
  const node = svg("svg", { viewBox: `0 0 ${side} ${side}`, role: "img", "aria-label": name });
  const step = Math.ceil(k / 10);
  for (let i = 0; i < k; i++) {
    if (i % step === 0) node.append(svg("text", { class: "soft", x: edge + (i + 0.5) * cell, y: edge - 6, "text-anchor": "middle" }, String(i + 1)), svg("text", { class: "soft", x: edge - 5, y: edge + (i + 0.5) * cell + 4, "text-anchor": "end" }, String(i + 1)));
    for (let j = 0; j < k; j++) {
      const value = values[i * k + j];
      node.append(hint(svg("rect", { x: edge + j * cell, y: edge + i * cell, width: cell - (k > 25 ? 0 : 0.8), height: cell - (k > 25 ? 0 : 0.8), fill: shade(value) }), `${name}\ncomponents ${i + 1} and ${j + 1}: ${show(value, 3)}`));
    }
  }
  return el("div", {}, el("p", {}, el("strong", {}, name)), el("p", { class: "about" }, about), node);
}

function matricesPanel(p, array) {
  if (p.n_components < 2) return null;
  const of = (name) => array(p.matrices[name]);
  const legend = keys([{ name: "1", colour: shade(1) }, { name: "0.5", colour: shade(0.5) }, { name: "0", colour: shade(0) }, { name: "\u22120.5", colour: shade(-0.5) }, { name: "\u22121", colour: shade(-1) }]);
  return section("Overlap and similarity of components", "", [legend, el("div", { class: "row" },
    matrix(p, of("overlap"), "Overlap of maps", "0: no overlap; 1: the same place."),
    matrix(p, of("similarity"), "Correlation of maps", "Over the sites in use."),
    matrix(p, of("together"), "Correlation of loadings", "Over subjects."))], true);
}

function loadingsPanel(data, p, array, ramp, choose) {
  const L = array(p.loadings), k = p.n_components, n = p.subjects.length, errors = data.loading_se && array(data.loading_se);
  const sizes = Float32Array.from(L, Math.abs).sort(), high = sizes[Math.floor(0.99 * (sizes.length - 1))] || 1, low = p.signed ? -high : 0;
  const tall = Math.min(n, 8192); // browsers draw no canvas of any height
  const canvas = el("canvas", { width: k, height: tall, role: "img", "aria-label": `Loadings of ${n} subjects on ${k} components` });
  const context = canvas.getContext("2d"), image = context.createImageData(k, tall);
  for (let row = 0; row < tall; row++) p.component_order.forEach((component, column) => {
    const subject = p.order[Math.floor((row * n) / tall)];
    const t = Math.round(255 * Math.max(0, Math.min(1, (L[subject * k + component] - low) / (high - low))));
    for (let channel = 0; channel < 3; channel++) image.data[4 * (row * k + column) + channel] = ramp[3 * t + channel];
    image.data[4 * (row * k + column) + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.min(n - 1, Math.max(0, Math.floor((n * (event.clientY - box.top)) / box.height)));
    const column = Math.min(k - 1, Math.max(0, Math.floor((k * (event.clientX - box.left)) / box.width)));
    return [p.order[row], p.component_order[column]];
  };
  canvas.addEventListener("pointermove", (event) => {
    const [subject, component] = cellAt(event);
    const error = errors ? ` \u00b1 ${show(errors[subject * k + component], 2)}` : "";
    tip.show(`${p.subjects[subject]}\n${p.titles[component]}: ${show(L[subject * k + component])}${error}`, event);
  });
  canvas.addEventListener("pointerleave", tip.hide);
  canvas.addEventListener("click", (event) => choose(cellAt(event)[1]));
  const mark = el("div", { class: "mark-row", hidden: true });
  const stripe = el("canvas", { width: 256, height: 1, role: "img", "aria-label": `Colours of loadings from ${show(low, 3)} to ${show(high, 3)}` }), strip = stripe.getContext("2d"), bytes = strip.createImageData(256, 1);
  for (let i = 0; i < 256; i++) bytes.data.set([ramp[3 * i], ramp[3 * i + 1], ramp[3 * i + 2], 255], 4 * i);
  strip.putImageData(bytes, 0, 0);
  const marks = el("div", { class: "ticks" }, ...ticks(low, high, 4).map((value) => {
    const mark = el("span", {}, show(value, 3));
    mark.style.left = `${(100 * (value - low)) / (high - low)}%`;
    return mark;
  }));
  const signs = p.signed ? " Orange: above the average; blue: below it." : "";
  const how = array(p.tree).length || n < 3 ? "Subjects (rows) and components (columns) in the order of Ward's clustering, with similar ones next to each other."
    : "Subjects (rows) in the order of the first principal component of their loadings, components (columns) in that of Ward's clustering.";
  return section("Loadings", `${how}${signs} Point to read, click to see that component.`, [
    subjectSearch(p, L, array, mark),
    el("div", { class: "heat" }, dendrogram(p, array(p.tree)), el("div", { class: "map" }, canvas, mark), el("div", { class: "labels" }, ...p.component_order.map((j) => el("span", {}, k > 60 ? "" : String(j + 1))))),
    el("div", { class: "bar" }, el("div", { class: "scale" }, el("div", { class: "name" }, "loading"), stripe, marks))], k > MANY);
}

/** A field to find a subject by a part of the name: marks the row, and says what is in it. Enter goes on to the next. */
function subjectSearch(p, L, array, mark) {
  const names = p.subjects.map((name) => name.toLowerCase()), n = names.length, k = p.n_components, rows = new Array(n);
  p.order.forEach((subject, row) => { rows[subject] = row; });
  const field = el("input", { type: "search", id: "subject", autocomplete: "off", spellcheck: "false", placeholder: p.subjects[0].slice(0, 24) }), said = el("div", { class: "found", role: "status" });
  let found = [], at = 0;
  const tell = () => {
    mark.hidden = !found.length;
    if (!found.length) return said.replaceChildren(field.value.trim() ? `No subject has \u201c${field.value.trim()}\u201d in the name.` : "");
    const i = found[at], share = array(p.subject_explained)[i];
    mark.style.top = `${(100 * rows[i]) / n}%`;
    mark.style.height = `${100 / n}%`;
    const facts = [`row ${many(rows[i] + 1)} of ${many(n)}`, `residual ${show(array(p.residual)[i])}${p.units ? ` ${p.units}` : ""}`, `explained ${percent(Number.isNaN(share) ? null : share)}`];
    said.replaceChildren(el("p", {}, el("strong", {}, p.subjects[i]), `: ${facts.join(", ")}.${found.length > 1 ? ` ${many(at + 1)} of ${many(found.length)} found; Enter shows the next.` : ""}`),
      el("p", { class: "about" }, `Loadings: ${Array.from({ length: k }, (_, j) => `${j + 1}: ${show(L[i * k + j], 3)}`).join("; ")}`));
  };
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase(), exact = names.indexOf(wanted);
    found = wanted ? [...names.keys()].filter((i) => i !== exact && names[i].includes(wanted)) : [];
    if (exact >= 0) found.unshift(exact);
    at = 0;
    tell();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) return;
    event.preventDefault();
    at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    tell();
  });
  return el("div", { class: "search screen" }, el("label", { for: "subject" }, "Find a subject"), field, said);
}

/** The tree of subjects, leaves at the right; heights as square roots, for the last joins dwarf the others. */
function dendrogram(p, tree) {
  const n = p.subjects.length, node = svg("svg", { viewBox: "0 0 90 420", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (!tree.length) return node;
  const place = new Map(p.order.map((subject, row) => [subject, [90, (420 * (row + 0.5)) / n]]));
  const top = Math.sqrt(tree[tree.length - 2]) || 1;
  let d = "";
  for (let i = 0; i < tree.length / 4; i++) {
    const [a, b] = [place.get(tree[4 * i]), place.get(tree[4 * i + 1])], x = 90 - (84 * Math.sqrt(tree[4 * i + 2])) / top;
    d += `M${a[0].toFixed(1)} ${a[1].toFixed(1)}H${x.toFixed(1)}V${b[1].toFixed(1)}H${b[0].toFixed(1)}`;
    place.set(n + i, [x, (a[1] + b[1]) / 2]);
  }
  node.append(svg("path", { d, fill: "none", stroke: "#5b6573", "stroke-width": n > 300 ? 0.4 : 0.8, "vector-effect": "non-scaling-stroke" }));
  return node;
}

function scatter(p, column, component, values, L) {
  const k = p.n_components, rows = [...values.keys()].filter((i) => !Number.isNaN(values[i]));
  const xs = rows.map((i) => values[i]), ys = rows.map((i) => L[i * k + component]);
  const [from, to] = span(xs), [xl, xh] = padded(from, to), [yl, yh] = padded(...span(ys));
  const { node, px, py } = frame({ low: xl, high: xh, name: column.column }, { low: yl, high: yh, name: `loading of component ${component + 1}` });
  const loading = (i) => L[i * k + component];
  dots(node, rows, (i) => px(values[i]), (i) => py(loading(i)), (i) => `${p.subjects[i]}\n${column.column}: ${show(values[i])}\nloading: ${show(loading(i))}`);
  const mx = xs.reduce((a, b) => a + b, 0) / xs.length, my = ys.reduce((a, b) => a + b, 0) / ys.length;
  let sxx = 0, sxy = 0;
  xs.forEach((x, i) => { sxx += (x - mx) ** 2; sxy += (x - mx) * (ys[i] - my); });
  const at = (x) => my + (sxy / sxx) * (x - mx);
  node.append(svg("path", { d: path([[px(from), py(at(from))], [px(to), py(at(to))]]), stroke: INK.orange, "stroke-width": 2, fill: "none" }));
  return node;
}

function boxPlot(p, column, component, codes, L) {
  const k = p.n_components, groups = column.labels.length;
  const every = [...codes.keys()].filter((i) => codes[i] !== 255).map((i) => L[i * k + component]);
  const [low, high] = padded(...span(every));
  const short = (text) => (text.length > 60 / groups + 6 ? `${text.slice(0, 60 / groups + 5)}\u2026` : text);
  const { node, px, py } = frame({ low: -0.5, high: groups - 0.5, name: column.column, ticks: column.labels.map((_, g) => g), text: (g) => short(column.labels[g]) }, { low, high, name: `loading of component ${component + 1}` });
  const wide = Math.min(60, 0.5 * (px(1) - px(0)));
  column.labels.forEach((label, g) => {
    const [least, lower, middle, upper, most] = column.boxes[g][component], x = px(g), count = codes.filter((code) => code === g).length;
    dots(node, [...codes.keys()].filter((i) => codes[i] === g), (i) => x + wide * 0.7 * (((i * 0.618) % 1) - 0.5), (i) => py(L[i * k + component]),
      (i) => `${p.subjects[i]}\n${label}\nloading: ${show(L[i * k + component])}`, { r: 2.4, opacity: () => 0.45 });
    const line = (x1, y1, x2, y2, w) => svg("line", { x1, x2, y1: py(y1), y2: py(y2), stroke: "#1d2430", "stroke-width": w });
    node.append(line(x, least, x, lower, 1.2), line(x, upper, x, most, 1.2), line(x - wide / 2, middle, x + wide / 2, middle, 2.6),
      hint(svg("rect", { x: x - wide / 2, width: wide, y: py(upper), height: Math.max(1, py(lower) - py(upper)), fill: "#fff0", stroke: "#1d2430", "stroke-width": 1.2 }), `${label}: ${count} subjects\nmedian ${show(middle)}\nquartiles ${show(lower)} to ${show(upper)}`));
  });
  return node;
}

function participantsPanel(p, array, choose) {
  const listed = p.columns, left = Object.entries(p.left_out);
  if (!listed.length && !left.length && !p.adjusted.length) return null;
  const k = p.n_components, side = (text) => el("th", { scope: "row", class: "side" }, text);
  const out = p.adjusted.map(([name, how]) => el("tr", {}, side(name), el("td", { colspan: k, class: "about" }, how)));
  const note = left.length ? [el("p", { class: "about" }, `Not compared: ${left.map(([name, why]) => `${name} (${why})`).join("; ")}.`)] : [];
  if (!listed.length) return section("Loadings and participants", "", [el("table", {}, ...out), ...note], true);
  const L = array(p.loadings), plot = el("div"), words = el("p", { "aria-live": "polite" });
  const buttons = new Map();
  const pick = (c, j) => {
    const column = listed[c], grouped = Boolean(column.labels);
    plot.replaceChildren(grouped ? boxPlot(p, column, j, array(column.codes), L) : scatter(p, column, j, array(column.values), L));
    words.replaceChildren(el("strong", {}, `${column.column}, ${called(p, j)}: `), `${grouped ? `η² = ${show(column.strength[j], 3)}` : `r = ${show(column.strength[j], 3)}`}, n = ${column.n}, ${probability(column.p[j])}`);
    for (const [key, node] of buttons) node.setAttribute("aria-pressed", String(key === `${c},${j}`));
  };
  const table = el("table", {}, el("tr", {}, el("td"), ...Array.from({ length: k }, (_, j) => el("th", { scope: "col", title: p.titles[j] }, String(j + 1)))),
    ...listed.map((column, c) => el("tr", {}, side(`${column.column} ${column.labels ? "(η²)" : "(r)"}`), ...column.strength.map((value, j) => {
      const node = el("button", { type: "button", class: column.p[j] < 0.05 ? "clear" : "", "aria-pressed": "false", onclick: () => { pick(c, j); choose(j); } }, k > MANY ? fixed(value, 2).replace("0.", ".") : fixed(value, 2));
      node.style.background = shade(0.7 * value);
      hint(node, `${column.column}, ${called(p, j)}\n${column.labels ? "η²" : "r"} = ${show(value, 3)}, n = ${column.n}\n${probability(column.p[j])}`);
      buttons.set(`${c},${j}`, node);
      return el("td", {}, node);
    }))), ...out);
  let best = [0, 0];
  listed.forEach((column, c) => column.p.forEach((value, j) => {
    const than = listed[best[0]].p[best[1]];
    if (value < than || (value === than && Math.abs(column.strength[j]) > Math.abs(listed[best[0]].strength[best[1]]))) best = [c, j];
  }));
  pick(...best);
  return section("Loadings and participants",
    "Numeric columns: Pearson's r. Categories: η², the share of variance between groups. Framed: p < 0.05 by permutations, corrected over components, not over columns. Choose a cell to see it." + dense(p.subjects.length),
    [el("div", { class: k > 12 ? "" : "row apart" }, el("div", { class: k > MANY ? "cells small" : "cells" }, table, ...note), el("div", { class: "plot" }, words, plot))], true);
}

function table(heads, rows, numeric = []) {
  const side = (i) => (numeric.includes(i) ? { class: "number" } : {});
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Table of ${heads.filter(Boolean).join(", ")}` }, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((text, i) => el("th", { scope: "col", ...side(i) }, text)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text, i) => el("td", side(i), text)))))));
}

function unusualPanel(p) {
  const u = p.unusual;
  const about = `Loadings and residuals more than ${show(u.limit, 3)} robust standard deviations from the median. Chance would produce one such value in twenty cohorts of this size.`;
  if (!u.subject.length) return section("Unusual subjects", about, [el("p", {}, "None.")], p.n_components <= MANY);
  const first = u.subject.slice(0, MOST_ROWS), rest = u.subject.length - first.length;
  const rows = first.map((i, at) => [p.subjects[i], u.component[at] < 0 ? "residual" : `loading of ${called(p, u.component[at])}`, `${show(u.value[at])}${u.component[at] < 0 && p.units ? ` ${p.units}` : ""}`, show(u.z[at], 3)]);
  const more = rest ? [el("p", { class: "about" }, `And ${many(rest)} more, nearer to the median; the table lists all.`)] : [];
  return section("Unusual subjects", about, [table(["subject", "what", "value", "z"], rows, [2, 3]), ...more], p.n_components <= MANY);
}

function residualPanel(p, array) {
  const residual = array(p.residual), share = array(p.subject_explained), units = p.units ? ` (${p.units})` : "";
  const xs = [...residual], ys = [...share].map((v) => (Number.isNaN(v) ? null : v)), known = ys.filter((v) => v !== null);
  const [xl, xh] = padded(...span(xs)), [yl, yh] = padded(...span(known));
  const { node, px, py } = frame({ low: xl, high: xh, name: `root mean square residual${units}` }, { low: yl, high: yh, name: "explained variance" });
  const odd = new Set(p.unusual.subject);
  const rows = [...xs.keys()].filter((i) => ys[i] !== null), r = xs.length > 400 ? 2 : 3.4, opacity = () => 0.65;
  const text = (i) => `${p.subjects[i]}\nresidual ${show(xs[i])}\nexplained ${percent(ys[i])}`;
  for (const [own, colour] of [[rows.filter((i) => !odd.has(i)), INK.blue], [rows.filter((i) => odd.has(i)), INK.orange]])
    dots(node, own, (i) => px(xs[i]), (i) => py(ys[i]), text, { r, colour, opacity });
  return section("Fit of each subject", `Residual over sites, and the share of the subject's variance about the mean map that the fit explains.${odd.size ? " Orange: listed as unusual." : ""}${dense(xs.length)}`, [node]);
}

function runPanel(data) {
  const seconds = Object.entries(data.timing).map(([stage, time]) => [stage, `${show(time, 3)} s`]);
  if (data.memory) seconds.push(["memory at most", `${show(data.memory, 3)} GiB`]);
  return section("Time and memory", "", [table(["stage", "time or memory"], seconds, [1])]);
}

/** Settings and versions as a table, the whole record folded below. */
function provenancePanel(data) {
  if (!data.provenance) return null;
  return section("Settings and versions", "", [el("dl", { class: "settings" }, ...data.settings.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("details", {}, el("summary", {}, "The record of the fit; provenance.json also lists every input file with its checksum"), el("pre", { tabindex: 0, role: "group", "aria-label": "provenance.json" }, data.provenance))], true);
}

function methodsPanel(data) {
  if (!data.methods) return null;
  const text = el("pre", { id: "methods", tabindex: 0, role: "group", "aria-label": "Text of the methods" }, data.methods), said = el("span", { role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(data.methods);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(text);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    said.textContent = " Copied.";
  };
  return section("Methods, ready to paste", "", [el("button", { type: "button", class: "copy", onclick: copy }, "Copy"), said, text], true);
}
