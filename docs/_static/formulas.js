/* Typeset the formulas of a page with KaTeX, which ships with the pages. */
for (const at of document.querySelectorAll(".math")) {
  katex.render(at.textContent, at, { displayMode: at.tagName === "DIV", throwOnError: false });
}
