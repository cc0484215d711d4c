// The release page: a preview that redraws, and releases that run as jobs.
import { $, ask, budget, complain, el, opener, settled, slid } from "/static/studio.js";

const SIDES = ["auto", 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96];
let file = null, place = null, box = null, asking = null;
const form = $("settings");
const hide = () => form.elements.hide.value;
const whole = () => !$("folder-row").hidden && $("whole-folder").checked;

function settings() {
  const block = SIDES[$("block").value];
  return {
    file: file.id, hide: hide(), box: box ? [box.x, box.y, box.w, box.h] : null, face: $("face").value,
    epsilon: String(slid($("epsilon").value)), block, delta: $("delta").value, restore: $("restore").value,
  };
}

function labels() {
  const epsilon = slid($("epsilon").value), block = SIDES[$("block").value];
  $("epsilon-out").textContent = epsilon;
  $("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
  $("block-out").textContent = block;
  $("block").setAttribute("aria-valuetext", block === "auto" ? "chosen automatically" : `${block} pixels`);
  $("sides").hidden = hide() !== "box";
  $("face-row").hidden = !["face", "person"].includes(hide());
  $("frame").classList.toggle("drawing", hide() === "box");
}

// --- the preview: the newest request wins, and says what it does while it takes its time

async function redraw() {
  if (!file) return;
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  if (hide() === "box" && !box) {
    $("previewing").textContent = "Draw a box over what must be hidden: drag over the original, or type its sides.";
    return;
  }
  $("preview-frame").setAttribute("aria-busy", "true");
  const slow = setTimeout(() => { $("previewing").textContent = "drawing noise of this size, and restoring what it leaves"; }, 400);
  try {
    const found = await ask("preview", settings(), signal);
    $("preview").src = found.picture;
    $("note").textContent = found.note;
    $("psnr").textContent = found.psnr ?? "–";
    $("cells").textContent = found.cells;
    $("hidden").textContent = `${found.hidden[0].toUpperCase()}${found.hidden.slice(1)}.`;
    $("epsilons").replaceChildren(...found.epsilons.map(([what, epsilon, where]) =>
      el("tr", {}, el("td", {}, what + where), el("td", { class: "right" }, epsilon))));
    $("visible").textContent = found.visible;
    $("open").textContent = `Besides, ${found.open}.`;
    $("warnings").replaceChildren(...found.warnings.map((line) => el("p", { class: "notice bad" }, line)));
    $("larger").replaceChildren(...found.larger.map((line) => el("li", {}, line)));
    $("previewing").textContent = "";
    complain(null);
    stands();
  } catch (error) {
    if (error.name === "AbortError") return;
    $("previewing").textContent = "";
    complain(error);
  } finally {
    clearTimeout(slow);
    if (!signal.aborted) $("preview-frame").setAttribute("aria-busy", "false");
  }
}

const stands = settled(async () => {
  if (hide() === "box" && !box) return;
  const now = file;
  try {
    const found = await ask("standing", settings());
    if (now !== file) return;
    $("standing").textContent = found.words;
    $("budgets").replaceChildren(...found.budgets.map(budget));
    // of clips and of whole folders it is known when the release begins
    $("again-row").hidden = !found.before && file.kind !== "clip" && !whole();
  } catch (error) { $("standing").textContent = error.message; }
}, 250);

const soon = settled(redraw, 60);

// --- the box

function place_box(next) {
  if (!file) return;
  const x = Math.max(0, Math.min(next.x, file.width - 1)), y = Math.max(0, Math.min(next.y, file.height - 1));
  box = { x, y, w: Math.max(1, Math.min(next.w, file.width - x)), h: Math.max(1, Math.min(next.h, file.height - y)) };
  for (const side of ["x", "y", "w", "h"]) if (document.activeElement !== $(`box-${side}`)) $(`box-${side}`).value = box[side];
  const drawn = $("box").style;
  drawn.left = `${(100 * box.x) / file.width}%`;
  drawn.top = `${(100 * box.y) / file.height}%`;
  drawn.width = `${(100 * box.w) / file.width}%`;
  drawn.height = `${(100 * box.h) / file.height}%`;
  $("box").hidden = hide() !== "box";
}

let from = null;
const at = (event) => {
  const frame = $("shown").getBoundingClientRect();
  return [Math.round(((event.clientX - frame.left) / frame.width) * file.width), Math.round(((event.clientY - frame.top) / frame.height) * file.height)];
};
$("frame").addEventListener("pointerdown", (event) => {
  if (!file || hide() !== "box") return;
  event.preventDefault();
  $("frame").setPointerCapture(event.pointerId);
  from = at(event);
});
$("frame").addEventListener("pointermove", (event) => {
  if (!from) return;
  const [x, y] = at(event);
  place_box({ x: Math.min(x, from[0]), y: Math.min(y, from[1]), w: Math.abs(x - from[0]), h: Math.abs(y - from[1]) });
});
for (const name of ["pointerup", "pointercancel"]) $("frame").addEventListener(name, () => { if (from) { from = null; soon(); } });
for (const side of ["x", "y", "w", "h"]) {
  $(`box-${side}`).addEventListener("input", () => {
    const [x, y, w, h] = ["x", "y", "w", "h"].map((name) => Number($(`box-${name}`).value) || 0);
    place_box({ x, y, w, h });
  });
}

form.addEventListener("input", () => { labels(); if (box) $("box").hidden = hide() !== "box"; soon(); });

// --- releases

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  complain(null);
  const folder = whole() ? place.slice(0, place.lastIndexOf("/") + 1) : null;
  try {
    await ask("release", { ...settings(), folder, again: !$("again-row").hidden && $("again").checked });
    $("again").checked = false;
    $("jobs-title").scrollIntoView({ block: "nearest" });
    follow();
  } catch (error) { complain(error); }
});

const shown = new Map();

function card(job) {
  const bar = el("progress", { max: "1", "aria-label": `progress of ${job.name}` });
  const parts = {
    state: el("span", { class: "tag" }), bar, said: el("p", { class: "quiet" }), lines: el("ul"), files: el("ul", { class: "files" }),
    statement: el("details", { hidden: true }, el("summary", {}, "The statement"), el("pre")),
    stop: el("button", { type: "button", class: "small", onclick: () => ask("stop_job", { job: job.id }).then(follow, complain) }, "Stop"),
    verify: el("button", { type: "button", class: "small", hidden: true, onclick: () => check(job, parts) }, "Verify"),
    found: el("div"), picture: el("img", { class: "released", alt: `What was released of ${job.name}`, hidden: true }),
  };
  parts.whole = el("article", { class: "job" }, el("header", {}, el("h3", {}, job.name), parts.state), bar, parts.said, parts.lines, parts.picture, parts.files,
    parts.statement, parts.found, el("p", { class: "actions" }, parts.stop, parts.verify));
  return parts;
}

async function check(job, parts) {
  parts.found.replaceChildren(el("p", { class: "quiet" }, "recomputing digests, noise and epsilon from the files"));
  try {
    const found = await ask("verify_job", { job: job.id });
    parts.found.replaceChildren(el("div", { class: `notice ${found.holds ? "holds" : "bad"}` }, ...found.lines.map((line) => el("p", {}, line))));
  } catch (error) { parts.found.replaceChildren(el("p", { class: "notice bad" }, error.message)); }
}

function update(parts, job) {
  const ended = ["done", "failed", "stopped"].includes(job.state);
  const words = { done: "finished", failed: "not released", running: "at work" };
  parts.state.textContent = words[job.state] ?? job.state;
  parts.state.className = `tag ${job.state === "done" ? "private" : job.state === "running" ? "training" : ""}`;
  if (job.of) parts.bar.value = job.at / job.of; else parts.bar.removeAttribute("value");
  parts.bar.hidden = ended;
  parts.said.textContent = job.folder ? `${job.said}, in ${job.folder}` : job.said;
  parts.said.className = job.state === "failed" ? "notice bad" : "quiet";
  parts.lines.replaceChildren(...job.lines.map((line) => el("li", {}, line)));
  if (parts.files.childElementCount !== job.files.length) {
    const drawn = job.files.filter((name) => /[.](png|jpg)$/.test(name)).at(-1);
    if (drawn) parts.picture.src = `${job.links[job.files.lastIndexOf(drawn)]}&show`;
    parts.picture.hidden = !drawn;
    parts.files.replaceChildren(...job.files.map((name, k) => el("li", {}, el("a", { href: job.links[k], download: name }, name))));
  }
  parts.statement.hidden = !job.statement;
  parts.statement.lastChild.textContent = job.statement;
  parts.stop.hidden = ended;
  parts.verify.hidden = !ended || !job.files.length;
}

let timer = 0;
async function follow() {
  clearTimeout(timer);
  let busy = true;
  try {
    const { jobs } = await ask("jobs");
    $("no-jobs").hidden = jobs.length > 0;
    for (const job of [...jobs].reverse()) {
      const fresh = !shown.has(job.id);
      if (fresh) { shown.set(job.id, card(job)); $("jobs").prepend(shown.get(job.id).whole); }
      const parts = shown.get(job.id), before = parts.was;
      update(parts, job);
      if (before && before !== job.state && file) stands();
      parts.was = job.state;
    }
    busy = jobs.some((job) => ["waiting", "running"].includes(job.state));
  } catch { /* asleep or restarted: it is asked again */ }
  if (busy) timer = setTimeout(follow, 700);
}

const place_of_releases = opener(async (opened, where) => {
  file = opened; place = where ?? null; box = null;
  const clip = file.kind === "clip";
  $("shown").src = file.shown;
  $("shown").alt = `The original, ${file.name}`;
  $("preview").removeAttribute("src");
  $("preview-frame").style.aspectRatio = `${file.width} / ${file.height}`;
  $("about").textContent = `${file.name}, ${file.width} × ${file.height}${clip ? `, ${file.frames} frames, ${file.seconds.toFixed(1)} s; its first frame` : ""}. It stays on this machine.`;
  $("block-row").hidden = clip;
  $("folder-row").hidden = !place || clip;
  $("again-row").hidden = true;
  $("box").hidden = true;
  $("delta").options[0].disabled = clip;  // a clip's noise is Gaussian
  if (clip && $("delta").value === "0") $("delta").value = "1e-5";
  if (!clip && $("delta").value === "1e-5") $("delta").value = "0";
  $("work").hidden = false;
  labels();
  await redraw();
});
labels();
follow();
$("out").textContent = (await place_of_releases)?.out ?? "";
