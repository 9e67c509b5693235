// Shows the decision of a snake before a move: scores, reasons and expected line.

import { brief } from "./board.js";

export const ARROWS = { up: "↑", down: "↓", left: "←", right: "→" };
export const MOVES = Object.keys(ARROWS);

/** Creates an HTML element; string children become text, never markup. */
export function html(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** Returns the elements that show the decision `next` (see server/battlesnake_server/replay_json.py). */
export function renderDecision(next, names) {
  const parts = [];
  if (Object.keys(next.scores).length) parts.push(scoreBars(next));
  if (next.reasons.length) parts.push(reasonTable(next));
  if (Object.keys(next.line ?? {}).length) parts.push(expectedLine(next.line, names));
  return parts;
}

/** Returns "≤ " if the search returns only an upper bound of the move's value. */
function bound(next, move) {
  const searched = Object.keys(next.line ?? {}).length > 0;
  return searched && move !== next.move && Number.isFinite(next.scores[move]) ? "≤ " : "";
}

function scoreBars(next) {
  const finite = MOVES.map((move) => next.scores[move]).filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  return html("ul", "scores", ...MOVES.map((move) => {
    const score = next.scores[move];
    const bar = html("i");
    const fraction = Number.isFinite(score) ? (high > low ? (score - low) / (high - low) : 1) : 0;
    bar.style.width = `${6 + 94 * fraction}%`;
    if (!Number.isFinite(score)) bar.style.width = "0";
    return html("li", move === next.move ? "chosen" : "",
      html("span", "", ARROWS[move]), html("div", "meter", bar), html("span", "", bound(next, move) + brief(score)));
  }));
}

function reasonTable(next) {
  const head = html("tr", "", html("th", "", "rule"),
    ...MOVES.map((move) => html("th", "", ARROWS[move])));
  const rows = next.reasons.flatMap((reason) => {
    const cells = MOVES.map((move) => {
      if (reason.vetoed.includes(move)) return html("td", "veto", "✕");
      const score = reason.scores[move];
      const limit = reason.rule === "search" ? bound(next, move).trim() : "";
      return html("td", "", score === undefined ? "" : limit + brief(score));
    });
    const rows = [html("tr", "", html("th", "", reason.rule.replaceAll("_", " ")), ...cells)];
    if (reason.note) {
      const note = html("td", "", reason.note);
      note.colSpan = 5;
      rows.push(html("tr", "note", note));
    }
    return rows;
  });
  return html("table", "reasons", html("thead", "", head), html("tbody", "", ...rows));
}

/** Returns the principal variation: the expected moves of every snake, drawn by the board. */
function expectedLine(line, names) {
  const rows = Object.keys(names).filter((id) => line[id]).map((id) => html("li", "",
    html("b", "", names[id]), ` ${line[id].map((move) => ARROWS[move] ?? "?").join("")}`));
  return html("div", "expected-line", html("h3", "", "Expected line"), html("ul", "", ...rows));
}
