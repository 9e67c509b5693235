/* Scores of the site's search: pages come before the generated reference and the Python API, and
   titles before text. Only a search for the whole name of a function or class (16 points), such as
   save_gif, ranks the Python API like a page.

   The numbers other than score() are the defaults of Sphinx. */
const isName = /^\S*([_.]|[a-z][A-Z])\S*$/.test(new URLSearchParams(location.search).get("q"));
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (kind === "object" && score >= 16 && isName) return score;
    if (docname.startsWith("docs/_api/") || kind === "object") return score - 1000;
    if (docname.startsWith("docs/_reference/")) return score - 3;
    const bonus = kind === "title" ? (anchor ? 2 : 12) : 0;
    if (/^docs\/(tutorials|how-to)\//.test(docname)) return score + bonus + 3;
    if (/^docs\/(research|project)\/|^(conformance\/)?[A-Z]+$|README|notebooks\//.test(docname)) return score - 5;
    return score + bonus;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
