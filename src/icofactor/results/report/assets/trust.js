// What `icofactor select` found: how many components, how far to trust them, where they lie.

/** A few whole numbers between two. */
function whole(from, to) {
  const step = Math.max(1, Math.ceil((to - from) / 8)), found = [];
  for (let i = Math.ceil(from); i <= to; i++) if (i % step === 0) found.push(i);
  return found;
}

/** Curves against the first column of the table: {title, curves: column → name}. */
function curveChart(selection, { title, curves }) {
  const x = Object.values(selection.table)[0], first = Object.keys(selection.table)[0];
  const series = Object.entries(curves).map(([column, name], i) => ({ name, values: selection.table[column], colour: [INK.blue, INK.orange, "#009e73"][i % 3] }));
  const known = series.flatMap((s) => s.values).filter((v) => v !== null), ranks = x.filter((v) => v !== null);
  if (!known.length || !ranks.length) return null;
  const log = Math.min(...known) > 0 && Math.max(...known) > 20 * Math.min(...known); // errors of overfitted numbers have no bound
  const [low, high] = log ? [Math.min(...known) / 1.1, Math.max(...known) * 1.1] : padded(Math.min(...known), Math.max(...known)), [from, to] = padded(Math.min(...ranks), Math.max(...ranks), 0.03);
  const name = first === "rank" ? "components" : first;
  const { node, px, py } = frame({ low: from, high: to, name, ticks: whole(from, to) }, { low, high, log, name: "" }, { width: 520, height: 250, left: 54 });
  if (selection.recommended !== null) node.append(hint(svg("line", { x1: px(selection.recommended), x2: px(selection.recommended), y1: 10, y2: 208, stroke: "#b9c1cb", "stroke-width": 7, "stroke-opacity": 0.6 }), `Recommended: ${selection.recommended}`));
  for (const { name: label, values, colour } of series) {
    const points = x.map((rank, i) => [rank, values[i]]).filter(([rank, v]) => rank !== null && v !== null);
    node.append(svg("path", { d: path(points.map(([rank, v]) => [px(rank), py(v)])), fill: "none", stroke: colour, "stroke-width": 1.6 }),
      ...points.map(([rank, v]) => hint(svg("circle", { cx: px(rank), cy: py(v), r: 3.4, fill: colour }), `${label}\n${name} ${rank}: ${show(v)}`)));
  }
  return el("div", {}, el("p", {}, el("strong", {}, title)), keys(series), node);
}

function selectionPanel(selection) {
  if (!selection) return null;
  const names = Object.keys(selection.table), n = selection.table[names[0]].length;
  const rows = Array.from({ length: n }, (_, i) => names.map((name) => (Number.isInteger(selection.table[name][i]) ? String(selection.table[name][i]) : Math.abs(selection.table[name][i]) >= 100 ? show(selection.table[name][i]) : fixed(selection.table[name][i], 3))));
  const found = selection.recommended === null ? "No number of components is recommended." : `Recommended: ${selection.recommended} components.`;
  const numbers = table(names.map((name) => name.replaceAll("_", " ")), rows, names.map((_, i) => i));
  if (names.length > 8) numbers.classList.add("tight");
  return section("How many components", "Curves over numbers of components, from icofactor select; grey: the recommended number. Shares that are explained or predicted are 1 minus the errors in the table.", [
    el("p", {}, el("strong", {}, found), ` ${selection.agreement}`), el("ul", {}, ...selection.reasons.map((text) => el("li", {}, text))),
    el("div", { class: "row pairs" }, ...selection.charts.map((chart) => curveChart(selection, chart)).filter(Boolean)), el("details", {}, el("summary", {}, "All numbers"), numbers)], true);
}

function stabilityPanel(stability, p) {
  if (!stability) return null;
  const rows = stability.stability.map((value, j) => [p.titles[j].replace("Component ", ""), fixed(value, 3), fixed(stability.stability_5th_percentile[j], 3), fixed(stability.relative_standard_error[j], 3)]);
  const series = [{ name: "mean over resamples", values: stability.stability.map((v) => Math.max(0, v ?? 0)), colour: INK.blue }, { name: "5th percentile", values: stability.stability_5th_percentile.map((v) => Math.max(0, v ?? 0)), colour: INK.orange }];
  return section("Stability of components", "Correlation of each map with its partner in fits to subjects resampled from these. Standard error: of the map over resamples, relative to the size of the map. The layer Standard error shows where it is large. Point at a loading to see its standard error.", [
    el("div", { class: "row pairs" }, el("div", {}, keys(series), bars(p, series, "correlation with resamples", (v) => show(v, 3))),
      table(["component", "stability", "5th percentile", "relative standard error"], rows, [0, 1, 2, 3]))], true);
}

function overlapPanel(overlap, p) {
  if (!overlap) return null;
  let last = 0;
  const blocks = overlap.shown.map((i) => {
    const j = overlap.component[i], first = j !== last;
    last = j;
    return [first ? String(j) : "", first ? overlap.titles[j - 1] : "", overlap.region[i], percent(overlap.share[i]), ...overlap.measures.map((name) => percent(overlap[`share_${name}`][i])), percent(overlap.area[i]), `${fixed(overlap.enrichment[i], 2)} \u00d7`, fixed(overlap.p[i], 3), fixed(overlap.q[i], 3)];
  });
  const heads = ["component", "proposed name", "region", overlap.measures.length ? "share of the component, mean" : "share of the component", ...overlap.measures, "share of the cortex", "enrichment", "p", "q"];
  return section("Where components lie", "The five atlas regions with the largest share of each component, and those it is named after. Enrichment: mean of the map in the region over its mean on the cortex; p: against rotations of the map; q: p corrected over all components and regions. Names are proposals from regions with q \u2264 0.05, with the share of the component there. A question mark means that no region is enriched beyond chance.",
    [table(heads, blocks, [...heads.keys()].filter((c) => c === 0 || c > 2))], true);
}
