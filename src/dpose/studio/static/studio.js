// What all pages share: asking the studio, building elements (never from text that is markup), opening files.

export const $ = (id) => document.getElementById(id);

/** An element: el("a", {href: "/"}, "text", child). Texts become text. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// The secret of this start stands in the printed address after "#", which no request carries. This tab alone keeps it, in
// a storage that tells ports apart, as cookies do not; a fragment of a page's own ("#main") is none.
const HEADER = "x-dpose-studio";
function enter() {
  const [, secret] = location.hash.match(/^#([\w-]{43})$/) ?? [];
  if (!secret) return false;
  sessionStorage.setItem(HEADER, secret);
  history.replaceState(null, "", location.pathname);
  return true;
}
enter();
addEventListener("hashchange", () => { if (enter()) location.reload(); });
const secret = () => sessionStorage.getItem(HEADER) ?? "";

async function answered(response) {
  const text = await response.text();
  let found;
  try { found = JSON.parse(text); } catch { throw new Error(text.trim() || "the studio gave no answer"); }
  if (!response.ok) throw new Error(found.error || "the studio refused");
  return found;
}

/** Ask the studio for something. Throws an Error whose message is one line for a person. */
export async function ask(name, body = {}, signal = undefined) {
  let response;
  try {
    response = await fetch(`/api/${name}`, {
      method: "POST", headers: { "content-type": "application/json", [HEADER]: secret() }, body: JSON.stringify(body), signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the studio does not answer: has it ended, or is the machine just waking up?");
  }
  return answered(response);
}

/** Show an error's line, or nothing. */
export function complain(error, where = $("error")) {
  where.textContent = error ? error.message ?? String(error) : "";
  where.hidden = !error;
}

function upload(file, tell) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/api/upload?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader(HEADER, secret());
    request.upload.onprogress = (event) => tell(event.loaded < event.total
      ? `copying ${file.name}: ${Math.floor((100 * event.loaded) / event.total)} %`
      : `decoding ${file.name}, in a process of its own`);
    request.onerror = () => reject(new Error("the studio does not answer, or refused the file"));
    request.onload = () => answered(new Response(request.responseText, { status: request.status })).then(resolve, reject);
    request.send(file);
  });
}

/** Wire the drop zone and the folders; `opened(file, place)` is called with what the studio knows of the file. Gives the
 * folders, and where releases go. */
export function opener(opened) {
  const drop = $("drop"), input = $("file"), said = $("opening");
  const tell = (text) => { said.textContent = text; };
  async function take(find, place) {
    complain(null);
    try {
      const file = await find();
      tell(`${file.name} is open`);
      await opened(file, place);
    } catch (error) {
      tell(error.message);
    }
  }
  const sent = (file) => { tell(`copying ${file.name}`); take(() => upload(file, tell)); };
  input.addEventListener("change", () => { if (input.files[0]) sent(input.files[0]); input.value = ""; });
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) sent(event.dataTransfer.files[0]);
  });
  const folders = $("folders");
  async function show(place, back) {
    const list = el("ul");
    try {
      const here = await ask("browse", place ? { place } : {});
      const button = (label, work) => list.append(el("li", {}, el("button", { type: "button", class: "small", onclick: work }, label)));
      if (back) button("↑ back", back);
      for (const one of here.folders) button(`${one.name}/`, () => show(one.place, () => show(place, back)));
      for (const one of here.files) {
        button(one.name, () => { tell(`decoding ${one.name}, in a process of its own`); take(() => ask("open_file", { place: one.place }), one.place); });
      }
      if (!here.folders.length && !here.files.length) list.append(el("li", {}, "no picture or clip here"));
    } catch (error) { tell(error.message); }
    $("browser").replaceChildren(list);
  }
  folders.addEventListener("toggle", () => { if (folders.open) show(null, null); }, { once: true });
  return ask("browse").then((found) => { folders.hidden = !found.folders.length; return found; }, (error) => tell(error.message));
}

/** A table with a head and rows of texts; the columns named in `right` are numbers. */
export function table(caption, head, rows, right = []) {
  const cell = (kind, text, k, more = {}) => el(kind, { class: right.includes(head[k]) ? "right" : undefined, ...more }, text);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "hide" }, caption),
      el("thead", {}, el("tr", {}, ...head.map((text, k) => cell("th", text, k, { scope: "col" })))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((text, k) => cell("td", text, k)))))));
}

/** A budget as a bar and words. */
export function budget(state) {
  const bar = el("meter", { min: "0", max: "1", low: "0.5", high: "0.8", optimum: "0", value: state.used, "aria-label": `share used of the budget for ${state.for}` });
  return el("div", { class: "budget" },
    el("p", {}, el("strong", {}, `${state.left} left`), ` of epsilon ${state.epsilon} for ${state.for}; ${state.spent} spent`), bar,
    el("details", {}, el("summary", {}, "in full"), el("ul", {}, ...state.lines.map((line) => el("li", {}, line)))));
}

/** Epsilon of a slider from 0 to 100: from 0.1 to 64, two digits. */
export function slid(value) { return Number((0.1 * 640 ** (value / 100)).toPrecision(2)); }

/** Call `work` when `wait` milliseconds have passed without another call. */
export function settled(work, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, wait); };
}
