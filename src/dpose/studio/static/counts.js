// The counts page: published numbers by window, with their intervals, read again every ten seconds.
import { $, ask, complain, el, table } from "/static/studio.js";
import { chart } from "/static/chart.js";

const number = (value) => String(Number(value.toPrecision(3)));

function drawn(one, x) {
  const where = el("div", { class: "chart" }), [, last, low, high] = one.points.at(-1);
  const curves = [1, 2, 3].map((k) => ({ points: one.points.map((point) => [point[0], point[k]]) }));
  chart(where, curves, { x, y: one.unit, label: `${one.name}: ${one.points.length} windows, the last ${number(last)}, between ${number(low)} and ${number(high)}` });
  return el("div", {}, el("h3", {}, one.name), where);
}

function entry(one) {
  const rows = one.series.map((s) => [s.name, ...s.points.at(-1).slice(1).map(number), s.unit]);
  return el("article", { class: "entry" }, el("header", {}, el("h2", {}, one.name)),
    ...one.said.map((line) => el("p", { class: "quiet" }, line)),
    ...(rows.length ? [table(`Last window of ${one.name}`, ["what", "value", "from", "to", "unit"], rows, ["value", "from", "to"])] : []),
    el("div", { class: "cards" }, ...one.series.map((s) => drawn(s, one.x))));
}

async function list() {
  try {
    const { counts, folders } = await ask("counts");
    $("counts").replaceChildren(...counts.map(entry));
    $("listing").textContent = counts.length ? "Whole line: the number. Broken lines: the interval of its noise (95 %); what the model misses is not in it."
      : folders ? "No count stands in the folders that the studio may read." : "The studio may read no folder: start it with dpose studio --folder counts.";
    complain(null);
  } catch (error) { complain(error); }
  setTimeout(list, 10_000);
}

list();
