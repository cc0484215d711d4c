// The runs page: a table, what stands in a run, two of them side by side, and one that trains, followed.
import { $, ask, complain, el, opener, table } from "/static/studio.js";
import { chart } from "/static/chart.js";

const chosen = new Set();
let open = [], timer = 0, picture = null;

async function list() {
  $("listing").textContent = "looking through the folders";
  try {
    const { runs, folders } = await ask("runs");
    const rows = runs.map((run) => {
      const box = el("input", { type: "checkbox", "aria-label": `compare ${run.name}` });
      box.checked = chosen.has(run.run);
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(run.run); else chosen.delete(run.run);
        $("compare").disabled = chosen.size !== 2;
      });
      return el("tr", {}, el("td", {}, box), el("td", {}, el("button", { type: "button", class: "small", onclick: () => show([run.run]) }, run.name)),
        el("td", {}, run.method), el("td", {}, el("span", { class: `tag ${run.kind}` }, run.kind)), el("td", { class: "right" }, run.epsilon || "–"));
    });
    $("runs").tBodies[0].replaceChildren(...rows);
    $("runs").hidden = !rows.length;
    $("listing").textContent = rows.length ? "" : folders
      ? "No run stands in the folders that the studio may read."
      : "The studio may read no folder: start it with dpose studio --folder runs.";
    complain(null);
  } catch (error) { $("listing").textContent = ""; complain(error); }
}

async function show(runs) {
  clearTimeout(timer);
  open = runs;
  $("listing").textContent = "reading the run; the first takes a few seconds, until the models' libraries are loaded";
  await refresh(true);
  $("listing").textContent = "";
}

async function refresh(fresh = false) {
  clearTimeout(timer);
  const now = open;
  try {
    const found = await Promise.all(now.map((run) => ask("run", { run })));
    if (now !== open) return;
    if (fresh) {
      const cards = found.map((run, k) => make(now[k], run));
      const both = found.length === 2 ? [beside(found)] : [];
      $("detail").replaceChildren(...cards, ...both);
      if (found.length === 1) $("detail").firstChild.querySelector("h2").focus();
    } else found.forEach((run, k) => fill($("detail").children[k], now[k], run));
    $("predict").hidden = !(found.length === 1 && found[0].model);
    $("predicted").replaceChildren();
    if (found.some((run) => run.training)) timer = setTimeout(refresh, 2000);
    complain(null);
  } catch (error) { complain(error); timer = setTimeout(refresh, 5000); }
}

function make(run, found) {
  const card = el("article", { class: "entry" }, el("header", {}, el("h2", { tabindex: "-1" }, found.name), el("span", { class: "tag" })),
    el("p", { class: "facts" }), el("div", { class: "actions" }), el("div", { class: "verified", role: "status" }),
    el("div", { class: "chart" }), el("p", { class: "legend" }), el("div", { class: "scores" }), el("div", { class: "report" }));
  fill(card, run, found);
  return card;
}

function fill(card, run, found) {
  const part = (name) => card.querySelector(name);
  part(".tag").className = `tag ${found.kind}`;
  part(".tag").textContent = found.training && found.kind !== "training" ? "starting" : found.kind;
  const facts = [found.method, found.data, found.planned ? `step ${found.steps.toLocaleString("en")} of ${found.planned.toLocaleString("en")}` : found.steps ? `${found.steps} steps` : "", found.epsilon && `epsilon ${found.epsilon}`, found.complaint];
  part(".facts").textContent = facts.filter(Boolean).join(" · ");
  const button = (label, work) => el("button", { type: "button", class: "small", onclick: work }, label);
  const say = (name, after) => async () => {
    const where = part(".verified");
    where.replaceChildren(el("p", { class: "quiet" }, name === "verify" ? "recomputing epsilon and digests from ledger and files" : "asking"));
    try {
      const answer = await ask(name, { run });
      where.replaceChildren(el("div", { class: `notice ${answer.holds === false ? "bad" : "holds"}` }, ...(answer.lines ?? [answer.said]).map((line) => el("p", {}, line))));
      if (after) timer = setTimeout(() => { list(); refresh(); }, 800);
    } catch (error) { where.replaceChildren(el("p", { class: "notice bad" }, error.message)); }
  };
  const state = [found.training, found.resumable, Boolean(found.statement), Boolean(found.report)].join();
  if (card.dataset.state !== state) {
    card.dataset.state = state;
    part(".actions").replaceChildren(...[
      found.statement && !found.training ? button("Verify", say("verify")) : null,
      found.training ? button("Stop it", say("stop", true)) : null,
      found.resumable && !found.training ? button("Go on with it", say("resume", true)) : null,
    ].filter(Boolean));
    const frame = found.report ? el("details", {}, el("summary", {}, "The report")) : null;
    frame?.addEventListener("toggle", () => {
      if (frame.open && frame.childElementCount === 1) frame.append(el("iframe", { class: "report", title: `Report of ${found.name}`, src: found.report, sandbox: "" }));
    });
    const statement = found.statement ? el("details", { open: !found.report }, el("summary", {}, "The statement"), el("pre", {}, found.statement)) : null;
    part(".report").replaceChildren(...[statement, frame].filter(Boolean));
  }
  const [watched] = found.watched;
  const [name, points] = watched?.points.length > 1 ? [`${watched.metric}, %`, watched.points] : Object.entries(found.series).find(([key, values]) => key !== "lr" && values.length) ?? ["", []];
  part(".chart").hidden = !points.length;
  chart(part(".chart"), [{ points }], { x: "step", y: name.replaceAll("_", " "), label: `${name} by step: ${points.length} points, the last ${points.at(-1)?.[1]}` });
  part(".legend").textContent = watched ? `Watched: ${watched.name}.` : points.length ? "Of the training itself only what noise was added to, or does not need protection, is shown." : "";
  part(".scores").replaceChildren(...(found.scores.length ? [table(`Scores of ${found.name}`, ["data", "metric", "score", "they are"], found.scores, ["score"])] : []));
}

function beside(found) {
  const rows = [["method", "method"], ["guarantee", "kind"], ["epsilon", "epsilon"], ["steps", "steps"], ["data", "data"]]
    .map(([name, key]) => [name, ...found.map((run) => String(run[key] || "–"))]);
  const scored = [...new Set(found.flatMap((run) => run.scores.map(([data, metric]) => `${metric}, ${data}`)))];
  rows.push(...scored.map((name) => [name, ...found.map((run) => run.scores.find(([data, metric]) => `${metric}, ${data}` === name)?.[2] ?? "–")]));
  const curves = found.map((run) => ({ points: run.watched[0]?.points ?? [] }));
  const drawn = el("div", { class: "chart" });
  chart(drawn, curves, { x: "step", y: found.find((run) => run.watched.length)?.watched[0].metric ?? "", label: `Watched scores of ${found.map((run) => run.name).join(" and ")} by step` });
  drawn.hidden = !drawn.childElementCount;
  return el("article", { class: "entry" }, el("header", {}, el("h2", {}, "Side by side")),
    table("Two runs", ["", ...found.map((run) => run.name)], rows), drawn,
    el("p", { class: "legend" }, `Whole line: ${found[0].name}. Broken line: ${found[1].name}.`));
}

async function predict() {
  const where = $("predicted");
  where.replaceChildren(el("p", { class: "quiet", role: "status" }, "loading the model, and looking for joints: some seconds"));
  try {
    const found = await ask("predict", { run: open[0], file: picture.id });
    where.replaceChildren(
      el("figure", {}, el("div", { class: "frame" }, el("img", { src: `${found.picture}&${Date.now()}`, alt: `Joints drawn on ${picture.name}` })), el("figcaption", {}, picture.name)),
      table("Joints", ["joint", "x", "y", "score"], found.joints, ["x", "y", "score"]));
  } catch (error) { where.replaceChildren(el("p", { class: "notice bad" }, error.message)); }
}

opener(async (file) => { picture = file; await predict(); });
$("again").addEventListener("click", list);
$("compare").addEventListener("click", () => show([...chosen]));
list();
