// The account page: what data have given, what is left, and one picture's history.
import { $, ask, budget, complain, el, opener, table } from "/static/studio.js";

function entry(one) {
  const right = ["epsilon", "delta"];
  return el("article", { class: "entry" }, el("header", {}, el("h2", {}, one.name)),
    ...one.budgets.map(budget),
    ...(one.said.length ? [el("ul", {}, ...one.said.map((line) => el("li", {}, line)))] : [el("p", {}, "Nothing that this account knows of has read it.")]),
    ...(one.rows.length ? [table(`What read ${one.name}`, one.head, one.rows, right)] : []),
    ...one.notes.map((line) => el("p", { class: "quiet" }, line)));
}

opener(async (file) => {
  $("history").replaceChildren(el("p", { class: "quiet", role: "status" }, `looking for ${file.name} in the account`));
  try { $("history").replaceChildren(entry(await ask("history", { file: file.id }))); } catch (error) { $("history").replaceChildren(); complain(error); }
});
try {
  const found = await ask("account");
  $("datasets").replaceChildren(...found.datasets.map(entry));
  $("reading").textContent = found.datasets.length ? found.notes.join(" ") : "Nothing has been charged to this account yet.";
} catch (error) { $("reading").textContent = ""; complain(error); }
