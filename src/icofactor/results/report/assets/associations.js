// What `icofactor associate` found: effects of terms on loadings, and loadings adjusted for the other columns.

/** Estimates of a term with their 95 % intervals: tests are numbers of rows of the table. */
function effectChart(t, tests, k) {
  const several = tests.every((i) => t.estimate[i] === null);
  const value = (i) => (several ? t.standardized[i] : t.estimate[i]), known = tests.filter((i) => value(i) !== null);
  if (!known.length) return null;
  const ends = known.flatMap((i) => (several ? [value(i)] : [t.ci_low[i], t.ci_high[i], value(i)])).filter((v) => v !== null);
  const [low, high] = padded(Math.min(0, ...ends), Math.max(0, ...ends)), step = Math.ceil(k / 25);
  const marks = Array.from({ length: k }, (_, j) => j).filter((j) => (j + 1) % step === 0);
  const { node, px, py } = frame({ low: -0.5, high: k - 0.5, name: "component", ticks: marks, text: (j) => String(j + 1) },
    { low, high, name: several ? "Cohen\u2019s f" : "estimate, 95 % interval" }, { height: 250 });
  node.append(svg("line", { class: "axis", x1: px(-0.5), x2: px(k - 0.5), y1: py(0), y2: py(0) }));
  for (const i of known) {
    const x = px(t.component[i]), colour = t.p[i] !== null && t.p[i] < 0.05 ? INK.orange : INK.grey;
    if (!several && t.ci_low[i] !== null && t.ci_high[i] !== null) node.append(svg("line", { x1: x, x2: x, y1: py(t.ci_low[i]), y2: py(t.ci_high[i]), stroke: colour, "stroke-width": 2.4 }));
    node.append(hint(svg("circle", { cx: x, cy: py(value(i)), r: 4, fill: colour }), testText(t, i)));
  }
  return node;
}

const chance = (p) => (p === null ? "p n/a" : probability(p));
const interval = (t, i) => (t.ci_low[i] === null ? "n/a" : `${show(t.ci_low[i], 3)} to ${show(t.ci_high[i], 3)}`);
const ofMeasure = (t, i) => (t.measure[i] ? `, ${t.measure[i]}` : "");
const testText = (t, i) => `${t.term[i]}${ofMeasure(t, i)}, component ${t.component[i] + 1}\nestimate ${show(t.estimate[i], 3)}, 95 % interval ${interval(t, i)}\n${t.statistic[i]} = ${show(t.value[i], 3)}, ${chance(t.p[i])}`;

/** Adjusted loadings along a column, with what the model expects and its 95 % interval. */
function adjustedChart(a, column, test, array) {
  const own = array(column.values), loadings = array(column.adjusted), loading = a.tests.loading[test], k = loadings.length / own.length;
  const [mean, low, high] = column.expected.map((end) => end.map((row) => row[loading]));
  const rows = [...own.keys()].filter((i) => !Number.isNaN(own[i]) && !Number.isNaN(loadings[i * k + loading]));
  const at = column.at.map((_, i) => i).filter((i) => [column.at[i], mean[i], low[i], high[i]].every((v) => v !== null));
  const ys = [...rows.map((i) => loadings[i * k + loading]), ...at.flatMap((i) => [low[i], high[i]])];
  if (!ys.length) return null;
  const [yl, yh] = padded(...span(ys)), labels = column.labels, groups = labels ? labels.length : 0;
  const xs = [...rows.map((i) => own[i]), ...at.map((i) => column.at[i])];
  const [xl, xh] = labels ? [-0.5, groups - 0.5] : padded(...span(xs));
  const short = (text) => (text.length > 60 / groups + 6 ? `${text.slice(0, 60 / groups + 5)}\u2026` : text);
  const x = { low: xl, high: xh, name: column.column, ...(labels ? { ticks: labels.map((_, g) => g), text: (g) => short(labels[g]) } : {}) };
  const { node, px, py } = frame(x, { low: yl, high: yh, name: `adjusted loading of component ${a.tests.component[test] + 1}${ofMeasure(a.tests, test)}` });
  const wide = labels ? Math.min(60, 0.5 * (px(1) - px(0))) : 0;
  dots(node, rows, (i) => px(own[i]) + wide * (((i * 0.618) % 1) - 0.5), (i) => py(loadings[i * k + loading]),
    (i) => `${a.people[i]}\n${column.column}: ${labels ? labels[own[i]] : show(own[i])}\nadjusted loading: ${show(loadings[i * k + loading])}`, { r: rows.length > 400 ? 2 : 3, opacity: () => 0.5 });
  if (!labels) {
    const edge = (end) => at.map((i) => [px(column.at[i]), py(end[i])]);
    node.append(svg("path", { d: `${path([...edge(high), ...edge(low).reverse()])}Z`, fill: INK.orange, "fill-opacity": 0.2 }), svg("path", { d: path(edge(mean)), fill: "none", stroke: INK.orange, "stroke-width": 2 }));
  } else for (const i of at) {
    const here = px(column.at[i]), text = `${labels[i]}\nexpected ${show(mean[i])}, 95 % interval ${show(low[i])} to ${show(high[i])}`;
    node.append(svg("line", { x1: here, x2: here, y1: py(low[i]), y2: py(high[i]), stroke: INK.orange, "stroke-width": 3 }),
      hint(svg("line", { x1: here - wide / 2, x2: here + wide / 2, y1: py(mean[i]), y2: py(mean[i]), stroke: INK.orange, "stroke-width": 3 }), text));
  }
  return node;
}

function associationsPanel(a, p, array, choose) {
  if (!a) return null;
  const t = a.tests, k = p.n_components, terms = new Map();
  const rowOf = (i) => `${t.kind[i]} ${t.term[i]} ${t.measure[i]}`;
  t.term.forEach((_, i) => { const key = rowOf(i); terms.set(key, [...(terms.get(key) ?? []), i]); });
  const words = el("p", { "aria-live": "polite" }), effects = el("div"), adjusted = el("div"), buttons = new Map();
  const pick = (i) => {
    const column = a.columns[t.column[i]];
    words.replaceChildren(el("strong", {}, `${t.term[i]}${ofMeasure(t, i)}, ${called(p, t.component[i])}: `), `estimate ${show(t.estimate[i], 3)} (95 % interval ${interval(t, i)}), ${t.statistic[i]} = ${show(t.value[i], 3)}, ${chance(t.p[i])}`);
    effects.replaceChildren(...[effectChart(t, terms.get(rowOf(i)), k)].filter(Boolean));
    adjusted.replaceChildren(...[column ? adjustedChart(a, column, i, array) : null].filter(Boolean));
    for (const [key, node] of buttons) node.setAttribute("aria-pressed", String(key === i));
  };
  const cells = el("table", {}, el("tr", {}, el("td"), ...Array.from({ length: k }, (_, j) => el("th", { scope: "col", title: p.titles[j] }, String(j + 1)))),
    ...[...terms.values()].map((tests) => el("tr", {}, el("th", { scope: "row", class: "side" }, `${t.term[tests[0]]}${ofMeasure(t, tests[0])}`), ...[...tests].sort((i, j) => t.component[i] - t.component[j]).map((i) => {
      const value = t.standardized[i], node = el("button", { type: "button", class: t.p[i] !== null && t.p[i] < 0.05 ? "clear" : "", "aria-pressed": "false", onclick: () => { pick(i); choose(t.component[i]); } }, fixed(value, 2));
      node.style.background = shade(0.7 * Math.max(-1, Math.min(1, value ?? 0)));
      buttons.set(i, hint(node, testText(t, i)));
      return el("td", {}, node);
    }))));
  const rank = (i) => t.p[i] ?? 2, size = (i) => Math.abs(t.standardized[i] ?? 0);
  pick([...t.term.keys()].sort((i, j) => rank(i) - rank(j) || size(j) - size(i))[0]);
  const rows = t.term.map((term, i) => [term, ...(a.measures.length ? [t.measure[i]] : []), p.titles[t.component[i]].replace("Component ", ""), show(t.estimate[i], 3), interval(t, i), `${t.statistic[i]} = ${show(t.value[i], 3)}`, fixed(t.partial_r2[i], 3), t.p[i] === null ? "n/a" : t.p[i] < 0.001 ? "< 0.001" : fixed(t.p[i], 3)]);
  const corrected = a.n_permutations ? `p: ${many(a.n_permutations)} permutations, corrected over ${a.over}` : "p: by theory, not corrected";
  return section("Associations with loadings", `${a.formula}, by ${a.model} (icofactor associate): each term with the others in the model${a.measures.length ? ", on the loadings of each measure" : ""}. Cells: standardized effects; framed or orange: p < 0.05 (${corrected}). Adjusted loadings: what the model expects along a column, the others held (line, 95 % interval), and the people about it. Choose a cell to see it.${dense(a.people.length)}`, [
    el("div", { class: k > MANY ? "cells small" : "cells" }, cells), words, el("div", { class: "row pairs" }, effects, adjusted),
    ...(a.notes.length ? [el("ul", { class: "about" }, ...a.notes.map((text) => el("li", {}, String(text))))] : []),
    table(["term", ...(a.measures.length ? ["measure"] : []), "component", "estimate", "95 % interval", "statistic", "partial R\u00b2", a.n_permutations ? "p, corrected" : "p, by theory"], rows, [1, 2, 3, 4, 5, 6].map((c) => c + (a.measures.length ? 1 : 0)))], true);
}

/** Correlations of variables with the other side's score, with intervals; orange where the interval leaves out 0. */
function variableChart(v, rows, name) {
  const high = (i) => (v.ci_high[i] === null ? v.correlation[i] : v.ci_high[i]), low = (i) => (v.ci_low[i] === null ? v.correlation[i] : v.ci_low[i]);
  const ends = rows.flatMap((i) => [low(i), high(i), v.correlation[i]]).filter((value) => value !== null), line = 20, longest = Math.max(...rows.map((i) => v.variable[i].length));
  const short = (text) => (text.length > 24 ? `${text.slice(0, 23)}\u2026` : text), left = 26 + 7 * Math.min(longest, 24);
  const { node, px, py } = frame({ low: Math.min(0, ...ends) - 0.03, high: Math.max(0, ...ends) + 0.03, name },
    { low: rows.length - 0.5, high: -0.5, name: "", ticks: [] }, { height: line * rows.length + 52, left });
  rows.forEach((i, at) => {
    const sure = v.ci_low[i] !== null && (v.ci_low[i] > 0 || v.ci_high[i] < 0), colour = sure ? INK.orange : INK.grey;
    const text = `${v.variable[i]}\ncorrelation ${fixed(v.correlation[i], 2)}, 95 % interval ${v.ci_low[i] === null ? "n/a" : `${fixed(v.ci_low[i], 2)} to ${fixed(v.ci_high[i], 2)}`}\nbootstrap ratio ${fixed(v.bootstrap_ratio[i], 2)}`;
    node.append(svg("text", { class: "soft", x: left - 6, y: py(at) + 4, "text-anchor": "end" }, short(v.variable[i])),
      hint(svg("rect", { x: Math.min(px(0), px(v.correlation[i])), width: Math.abs(px(v.correlation[i]) - px(0)), y: py(at) - 6, height: 12, fill: colour, "fill-opacity": 0.75 }), text));
    if (v.ci_low[i] !== null) node.append(svg("line", { x1: px(v.ci_low[i]), x2: px(v.ci_high[i]), y1: py(at), y2: py(at), stroke: "currentColor", "stroke-width": 1.4 }));
  });
  node.append(svg("line", { class: "axis", x1: px(0), x2: px(0), y1: 10, y2: line * rows.length + 10 }));
  return node;
}

function latentPanel(l) {
  if (!l) return null;
  const v = l.variables, n = l.latent.p.length, words = el("p", { "aria-live": "polite" }), charts = el("div", { class: "row pairs" }), buttons = [];
  const of = (j, side) => [...v.side.keys()].filter((i) => v.side[i] === side && v.latent_variable[i] === j + 1);
  const pick = (j) => {
    words.replaceChildren(el("strong", {}, `Latent variable ${j + 1}: `), `${percent(l.latent.explained[j])} of the squared cross-correlation, ${chance(l.latent.p[j])}; scores correlate ${fixed(l.latent.correlation[j], 2)}`);
    charts.replaceChildren(...[["component", "behaviour"], ["measure", "components"]].map(([side, other]) => variableChart(v, of(j, side), `correlation with the score of ${other}`)));
    buttons.forEach((node, i) => node.setAttribute("aria-pressed", String(i === j)));
  };
  for (let j = 0; j < n; j++) buttons.push(el("button", { type: "button", "aria-pressed": "false", class: l.latent.p[j] !== null && l.latent.p[j] < 0.05 ? "clear" : "", onclick: () => pick(j) }, String(j + 1)));
  pick(0);
  const half = (side, j) => `${fixed(l.latent[`${side}_reproducibility`][j], 2)}${l.latent[`${side}_reproducibility_p`][j] === null ? "" : ` (${chance(l.latent[`${side}_reproducibility_p`][j])})`}`;
  const rows = l.latent.p.map((p, j) => [String(j + 1), percent(l.latent.explained[j]), chance(p), fixed(l.latent.correlation[j], 2), half("component", j), half("measure", j)]);
  const how = [l.n_permutations ? `p: ${many(l.n_permutations)} permutations of behaviour` : "no permutations", l.n_bootstrap ? `intervals: ${many(l.n_bootstrap)} resamples of people` : "no resamples"].join("; ");
  return section("Components and behaviour", `Behavioural partial least squares of ${many(l.n_rows)} rows (icofactor associate --pls): patterns of components that correlate with patterns of behaviour. Orange: the 95 % interval excludes 0; framed: p < 0.05 (${how}).`, [
    el("div", { class: "cells" }, el("table", {}, el("tr", {}, el("th", { scope: "row", class: "side" }, "latent variable"), ...buttons.map((node) => el("td", {}, node))))), words, charts,
    ...(l.notes.length ? [el("ul", { class: "about" }, ...l.notes.map((text) => el("li", {}, String(text))))] : []),
    table(["latent variable", "explained", "p", "correlation of scores", "halves agree: components", "halves agree: behaviour"], rows, [0, 1, 2, 3, 4, 5])], true);
}

/** W-scores of everybody: the reference in grey, others in orange, about 0 and the range of 95 % of the reference. */
function normPanel(w, p, array) {
  if (!w) return null;
  const k = p.n_components, measures = w.measures.length ? w.measures : [""], wide = k * measures.length;
  const scores = array(w.scores), at = (i, j, m = 0) => scores[i * wide + m * k + j], rows = [...w.people.keys()];
  const known = scores.filter((value) => !Number.isNaN(value));
  if (!known.length) return null;
  const [least, most] = span(known), [low, high] = padded(Math.min(-2, least), Math.max(2, most)), step = Math.ceil(k / 25);
  const marks = Array.from({ length: k }, (_, j) => j).filter((j) => (j + 1) % step === 0), small = rows.length * wide > 4000;
  const marksOf = (i, m) => Array.from({ length: k }, (_, j) => i * k + j).filter((c) => !Number.isNaN(at(i, c % k, m)));
  const charts = measures.map((measure, m) => {
    const { node, px, py } = frame({ low: -0.5, high: k - 0.5, name: "component", ticks: marks, text: (j) => String(j + 1) }, { low, high, name: `W-score${measure && ` of ${measure}`}` }, { width: 900, height: 320 });
    for (const [value, dash] of [[0, ""], [-1.96, "4 3"], [1.96, "4 3"]]) node.append(svg("line", { class: "axis", x1: px(-0.5), x2: px(k - 0.5), y1: py(value), y2: py(value), "stroke-dasharray": dash }));
    const side = 0.38 * (px(1) - px(0));
    for (const own of [true, false]) {
      const cells = rows.filter((i) => w.reference[i] === own).flatMap((i) => marksOf(i, m)), who = (c) => Math.floor(c / k), value = (c) => at(who(c), c % k, m);
      dots(node, cells, (c) => px(c % k) + (own ? -0.5 : 0.5) * side + side * 0.8 * (((who(c) * 0.618) % 1) - 0.5), (c) => py(value(c)),
        (c) => `${w.people[who(c)]}${own ? " (reference)" : ""}\n${measure && `${measure}, `}component ${(c % k) + 1}: W = ${fixed(value(c), 2)}${w.outside[who(c)] ? `\noutside the reference: ${w.outside[who(c)]}` : ""}`,
        { r: small ? 1.5 : 2.6, colour: own ? INK.grey : INK.orange, opacity: (c) => (w.outside[who(c)] ? 0.25 : 0.65) });
    }
    return node;
  });
  const s = w.summary, table_rows = s.others.map((n, i) => [measures.length > 1 ? `${(i % k) + 1}, ${measures[Math.floor(i / k)]}` : String(i + 1), String(n), fixed(s.mean[i], 2), percent(s.below[i]), percent(s.above[i])]);
  return section("Deviations from the reference", `W-scores of loadings: how far people are from the values that the reference (${w.chosen_by}, ${many(w.n_reference)} rows; grey) has at the same ${w.formula}, in its residual standard deviations (icofactor associate --reference). Orange: the others; faint: outside the reference\u2019s range, extrapolated. Dashed: 95 % of a normal reference. Scores of the reference come from models without the person.${dense(rows.length * k)}`, [
    ...charts, ...(w.notes.length ? [el("ul", { class: "about" }, ...w.notes.map((text) => el("li", {}, String(text))))] : []),
    table(["component", "others", "mean W", "W < \u22121.96", "W > 1.96"], table_rows, [0, 1, 2, 3, 4])], true);
}
