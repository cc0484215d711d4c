"""The page's style sheet: light and dark, paper and telephone, with the system's own fonts."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fbfaf8; --raised: #ffffff; --ink: #1d2329; --soft: #59626c; --rule: #dcdfe1; --grid: #e6e8e9;
  --accent: #1b5e7b; --wash: #eaf1f4; --warn: #97361f; --warn-wash: #faeee9; --base: #77818b;
  --serif: Charter, "Bitstream Charter", "Iowan Old Style", "Source Serif 4", Georgia, "Liberation Serif", serif;
  --sans: -apple-system, "Segoe UI", Roboto, Cantarell, Ubuntu, "Noto Sans", "Helvetica Neue", "Liberation Sans", Arial,
    sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --raised: #1b1f23; --ink: #e4e7ea; --soft: #a2acb6; --rule: #343b42; --grid: #2a3036;
    --accent: #86c5e0; --wash: #172a34; --warn: #f4a78f; --warn-wash: #36201a; --base: #8f99a3;
  }
}
*, *::before, *::after { box-sizing: border-box; }
html { text-size-adjust: 100%; -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 3.5rem 1.5rem 4rem; max-width: 63rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 var(--sans); overflow-wrap: break-word;
}
h1, h2, .fact, .lead { font-family: var(--serif); }
h1 { margin: .2rem 0 .6rem; font-size: clamp(1.9rem, 1.3rem + 2.6vw, 2.9rem); line-height: 1.12; font-weight: 600;
  letter-spacing: -.012em; text-wrap: balance; }
h2 { margin: 0 0 1.25rem; font-size: 1.65rem; line-height: 1.2; font-weight: 600; letter-spacing: -.006em; }
h3 { margin: 0 0 .5rem; font-size: 1rem; line-height: 1.4; font-weight: 650; }
p, ul { margin: 0 0 .9rem; max-width: 68ch; }
ul { padding-left: 1.1rem; }
li { margin: .2rem 0; padding-left: .1rem; }
li::marker { color: var(--soft); }
section { margin-top: 3.75rem; padding-top: 2rem; border-top: 1px solid var(--rule); }
code, pre { font-family: var(--mono); font-size: .86em; }
code { overflow-wrap: anywhere; }
.eyebrow { margin: 0; color: var(--soft); font-size: .82rem; font-weight: 600; letter-spacing: .04em; }
.summary { color: var(--soft); font-size: 1.06rem; }
.panel { margin: 1.75rem 0 1.5rem; padding: 1.4rem 1.6rem 1.25rem; border-left: 5px solid var(--accent);
  border-radius: 3px; background: var(--wash); }
.panel.none { border-color: var(--warn); background: var(--warn-wash); }
.panel p { margin-bottom: .5rem; } .panel p:last-child { margin-bottom: 0; }
.panel .eyebrow { color: var(--accent); }
.fact { display: flex; flex-wrap: wrap; gap: .1rem 2.4rem; max-width: none;
  font-size: clamp(2.1rem, 1.5rem + 2.9vw, 3.2rem);
  line-height: 1.15; letter-spacing: -.015em; font-variant-numeric: lining-nums; }
.panel.none .fact { color: var(--warn); font-weight: 650; }
.fact small { font: 500 1.05rem var(--sans); letter-spacing: 0; color: var(--soft); }
.fact b { font-weight: 600; color: var(--accent); }
.facts { display: flex; flex-wrap: wrap; gap: .9rem 2.75rem; margin: 0; }
dt { color: var(--soft); font-size: .82rem; } dd { margin: 0; font-weight: 550; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: .35rem 1.35rem; margin-top: 2rem; font-size: .92rem; }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: .22em; }
a:focus-visible, .scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; }
.lead { font-size: 1.17rem; line-height: 1.55; max-width: 66ch; }
.terms { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr));
  gap: 1.5rem 2.75rem; }
.side + .side { margin-top: 1.5rem; }
.side { padding-top: .8rem; border-top: 3px solid var(--accent); }
.side.open { border-color: var(--warn); }
.side ul, .terms ul, .lead:last-child { margin-bottom: 0; }
.terms { margin-top: 2rem; font-size: .93rem; }
.beside + .beside { margin-top: 2.75rem; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.5rem 2.75rem;
  align-items: start; }
.charts + .scroll { margin-top: 2rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: 2rem 2.75rem; }
figure { margin: 0; min-width: 0; }
figcaption { margin-top: .5rem; color: var(--soft); font-size: .88rem; line-height: 1.5; }
figcaption b { color: var(--ink); font-weight: 600; }
.chart { display: block; width: 100%; max-width: 30rem; height: auto; font-family: var(--sans); overflow: visible; }
.chart text { fill: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
.chart .title, .chart .name { fill: var(--ink); }
.chart .value { fill: var(--ink); font-weight: 600; }
.chart .key { fill: var(--accent); }
.chart path { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.chart .grid { stroke: var(--grid); } .chart .axis { stroke: var(--base); }
.chart .second-axis { stroke: var(--base); }
.chart .halo { paint-order: stroke; stroke: var(--paper); stroke-width: 5px; stroke-linejoin: round; }
.chart .line { stroke: var(--accent); stroke-width: 2; }
.chart .band { fill: var(--accent); opacity: .16; }
.chart .ruled-out { fill: var(--wash); }
.chart .diagonal { stroke: var(--base); stroke-dasharray: 5 5; }
.chart .reference { stroke: var(--base); stroke-width: 1.5; }
.chart .way { stroke: var(--rule); stroke-width: 4; }
.chart .dot { fill: var(--accent); } .chart .hollow { fill: var(--paper); stroke: var(--base); stroke-width: 2; }
.scroll { overflow-x: auto; margin: 0 0 1.25rem; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { padding-bottom: .5rem; text-align: left; color: var(--soft); font-size: .88rem; }
th, td { padding: .38rem 0 .38rem 1.6rem; text-align: left; vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
thead th { border-bottom: 1.5px solid var(--base); font-size: .88rem; line-height: 1.35; vertical-align: bottom; }
tbody th { font-weight: 400; } tbody tr + tr > * { border-top: 1px solid var(--grid); }
.tight td, .tight thead th:not(:first-child) { padding-left: .9rem; }
.numbers td, .numbers thead th:not(:first-child) { text-align: right; white-space: nowrap; }
.numbers th { white-space: nowrap; }
.words td:last-child { font-family: var(--mono); font-size: .8rem; overflow-wrap: anywhere; }
.words th, .words td { min-width: 9rem; padding-left: 1.1rem; font-size: .93rem; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 2.25rem 2.75rem; }
.tables > div { min-width: 0; } .tables .wide { grid-column: 1 / -1; }
.tables .scroll, .beside .scroll { margin-bottom: .5rem; }
.tight { width: 100%; } .tight.numbers thead th { white-space: normal; }
.tight th, .tight td { padding-top: .26rem; padding-bottom: .26rem; font-size: .93rem; }
.numbers:not(.tight) caption { white-space: nowrap; }
.source { margin-bottom: .35rem; max-width: none; } .note { color: var(--soft); font-size: .9rem; }
h3 + .source { margin-top: -.25rem; }
.mark { display: inline-block; padding: .08rem .55rem; border-radius: 1rem; background: var(--wash);
  color: var(--accent);
  font-size: .8rem; font-weight: 550; line-height: 1.5; }
.mark.warned { background: var(--warn-wash); color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 16.5rem), 1fr));
  gap: 1.4rem 1.4rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 3px; }
.pair img { display: block; width: 100%; height: auto; border-radius: 2px; background: var(--grid); }
.tile figcaption { margin-top: .3rem; font-size: .8rem; overflow-wrap: anywhere; }
.cards { columns: 19rem 2; column-gap: 2.75rem; }
.card { break-inside: avoid; margin-bottom: 1.75rem; }
.card table { width: 100%; font-size: .92rem; }
.card caption { padding-bottom: .35rem; border-bottom: 1.5px solid var(--base); color: var(--ink); font-size: 1rem;
  font-weight: 650; }
.card th { width: 45%; color: var(--soft); } .card td { overflow-wrap: anywhere; }
.command { margin: 0 0 1.5rem; padding: .8rem 1rem; border: 1px solid var(--rule); border-radius: 3px;
  background: var(--raised); white-space: pre-wrap; overflow-x: auto; line-height: 1.5; }
.command span { white-space: nowrap; }
footer { margin-top: 3.75rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); color: var(--soft);
  font-size: .88rem; }
@media (max-width: 34rem) {
  body { padding: 2rem 1rem 3rem; }
  section { margin-top: 2.75rem; padding-top: 1.5rem; }
  .panel { padding: 1.1rem 1.1rem 1rem; }
  th, td { padding-left: 1rem; }
  .lead { font-size: 1.1rem; }
  .chart text { font-size: 14px; }
}
@media print {
  @page { margin: 16mm; }
  :root { --paper: #ffffff; font-size: 10pt; }
  body { padding: 0; max-width: none; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; }
  section { margin-top: 2rem; padding-top: 1.3rem; }
  h1 { font-size: 2.6rem; } .fact { font-size: 2.9rem; }
  h1, h2, h3, caption, .source { break-after: avoid; }
  figure, .panel, .side, .card, tr, .numbers, .command, .terms > div { break-inside: avoid; }
  .beside, .terms, .tables, .charts { grid-template-columns: 1fr 1fr; gap: 1.5rem 2.25rem; }
  .tiles { grid-template-columns: repeat(3, 1fr); gap: 1rem; }
  .scroll, .command { overflow: visible; }
  .numbers th, .numbers td { padding-left: 1rem; } .numbers th:first-child { padding-left: 0; }
  p { orphans: 3; widows: 3; }
}
"""
