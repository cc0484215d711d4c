// The plan page: every number comes from the studio; dragging the noise reads the curve between its points.
import { $, ask, complain, el, settled, slid } from "/static/studio.js";
import { chart } from "/static/chart.js";

let asking = null, now = null, points = [];

function settings() {
  const body = { epsilon: String(slid($("epsilon").value)) };
  for (const name of ["units", "epochs", "batch", "delta", "method", "relation"]) body[name] = $(name).value;
  return body;
}

async function redraw() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  $("planning").textContent = "calibrating the noise; a budget that was never asked for takes a few seconds";
  try {
    const body = settings(), found = await ask("plan", body, signal);
    now = found;
    complain(null);
    $("numbers").replaceChildren(...found.numbers.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
    $("reached").textContent = found.reached;
    $("protects").replaceChildren(...found.protects.map((line) => el("li", {}, line)));
    $("open").replaceChildren(...found.open.map((line) => el("li", {}, line)));
    $("neighbours").textContent = found.neighbours;
    $("summary").textContent = found.summary;
    $("commands").replaceChildren(...found.commands.map((line) => el("div", { class: "command" }, el("code", {}, line),
      el("button", { type: "button", class: "small", onclick: (event) => copy(line, event.target) }, "Copy"))));
    chart($("attack"), [{ points: found.attack }], {
      x: "false alarms", y: "found out, at most", range: { x: [0, 1], y: [0, 1] }, guess: true,
      label: `Trade-off curve: the most true positives at each rate of false ones. ${found.reached}`,
    });
    $("planning").textContent = "drawing epsilon for other noise";
    points = (await ask("curve", { ...body, sigma: found.sigma, steps: found.steps, rate: found.rate }, signal)).points;
    read();
    $("planning").textContent = "";
  } catch (error) {
    if (error.name === "AbortError") return;
    $("planning").textContent = "";
    complain(error);
  }
}

async function copy(text, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select it by hand"; }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

/** The noise on the slider, and epsilon for it: of the next point with less noise, which holds for more noise too. */
function read() {
  if (!points.length) return;
  const low = points[0][0], high = points[points.length - 1][0];
  const sigma = low * (high / low) ** ($("noise").value / 100);
  const below = points.filter(([noise]) => noise <= sigma * (1 + 1e-9)), [noise, epsilon] = below[below.length - 1];
  const times = (noise / now.sigma).toPrecision(3);
  $("noise-out").textContent = times;
  $("noise").setAttribute("aria-valuetext", `${times} times the plan's noise: epsilon ${epsilon.toPrecision(3)}`);
  $("read").textContent = `noise multiplier ${noise.toPrecision(4)}: epsilon ${(Math.ceil(epsilon * 1000) / 1000).toFixed(3)}`;
  chart($("curve"), [{ points }], {
    x: "noise multiplier", y: "epsilon", mark: [noise, epsilon],
    label: `Epsilon by noise multiplier, from ${points[0][1].toPrecision(3)} at ${low.toPrecision(3)} to ${points[points.length - 1][1].toPrecision(3)} at ${high.toPrecision(3)}`,
  });
}

const soon = settled(redraw, 250);
$("plan").addEventListener("submit", (event) => event.preventDefault());
$("plan").addEventListener("input", () => {
  const epsilon = slid($("epsilon").value);
  $("epsilon-out").textContent = epsilon;
  $("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
  soon();
});
$("noise").addEventListener("input", read);
const { methods } = await ask("methods");
$("method").replaceChildren(...methods.map((name) => el("option", { value: name }, name)));
$("method").value = "dp-sgd";
redraw();
