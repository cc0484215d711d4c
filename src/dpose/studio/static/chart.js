// Line charts as SVG, of numbers that the studio computed. Every curve also stands in words beside its chart.

const WIDE = 460, TALL = 300, LEFT = 52, BOTTOM = 42, TOP = 12, RIGHT = 14;

function svg(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

function nice(low, high) {
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= 0.7 * rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) ticks.push(Number((k * step).toPrecision(10)));
  return ticks;
}

const brief = (value) => Math.abs(value) >= 1000 ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));

/** Draw curves [{name, points}] into `where`. Options: x, y (titles), label, range {x, y}, guess (a diagonal), mark [x, y]. */
export function chart(where, curves, { x, y, label, range = {}, guess = false, mark = null }) {
  const points = curves.flatMap((curve) => curve.points);
  if (!points.length) { where.replaceChildren(); return; }
  const span = (k, given) => {
    if (given) return given;
    const values = points.map((point) => point[k]), low = Math.min(...values), high = Math.max(...values);
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    return k ? [low >= 0 ? Math.max(0, low - pad) : low - pad, high + pad] : [low, high === low ? low + 1 : high];
  };
  const [x0, x1] = span(0, range.x), [y0, y1] = span(1, range.y);
  const across = (value) => LEFT + ((value - x0) / (x1 - x0)) * (WIDE - LEFT - RIGHT);
  const up = (value) => TALL - BOTTOM - ((value - y0) / (y1 - y0)) * (TALL - BOTTOM - TOP);
  const made = svg("svg", { viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", "aria-label": label });
  for (const tick of nice(y0, y1)) {
    made.append(svg("line", { class: "grid", x1: LEFT, x2: WIDE - RIGHT, y1: up(tick), y2: up(tick) }));
    made.append(svg("text", { x: LEFT - 7, y: up(tick) + 4, "text-anchor": "end" }, brief(tick)));
  }
  for (const tick of nice(x0, x1)) made.append(svg("text", { x: across(tick), y: TALL - BOTTOM + 17, "text-anchor": "middle" }, brief(tick)));
  made.append(svg("line", { class: "axis", x1: LEFT, x2: WIDE - RIGHT, y1: up(y0), y2: up(y0) }));
  made.append(svg("text", { x: (LEFT + WIDE - RIGHT) / 2, y: TALL - 6, "text-anchor": "middle" }, x));
  made.append(svg("text", { x: 14, y: (TALL - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TALL - BOTTOM) / 2})` }, y));
  if (guess) made.append(svg("path", { class: "guess", d: `M${across(x0)} ${up(y0)}L${across(x1)} ${up(y1)}` }));
  curves.forEach((curve, k) => {
    const path = curve.points.map(([a, b], n) => `${n ? "L" : "M"}${across(a).toFixed(1)} ${up(b).toFixed(1)}`).join("");
    made.append(svg("path", { class: `curve${k ? " second" : ""}`, d: path }));
    if (curve.points.length === 1) made.append(svg("circle", { class: "mark", r: 3.5, cx: across(curve.points[0][0]), cy: up(curve.points[0][1]) }));
  });
  if (mark) made.append(svg("circle", { class: "mark", r: 6, cx: across(mark[0]), cy: up(mark[1]) }));
  where.replaceChildren(made);
}
