// The only script of our own. Without it everything can still be read.

// What scrolls sideways can be reached and scrolled by keyboard, and says what it is.
const scrollers = new ResizeObserver((entries) => {
  // All is measured before anything is changed: a change between two measurements costs a layout of the page.
  const wide = new Set(entries.map(({ target }) => target).filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth));
  for (const { target } of entries) {
    if (wide.has(target)) {
      target.tabIndex = 0;
      target.setAttribute("role", "region");
      target.setAttribute("aria-label", target.dataset.name);
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) target.removeAttribute(name);
    }
  }
});
const kinds = { Formula: ".formula", Code: "pre > code", Table: ".md-typeset__scrollwrap" };
const watch = () => {
  for (const [kind, selector] of Object.entries(kinds)) {
    document.querySelectorAll(selector).forEach((element, index) => {
      if (element.dataset.name) return;
      element.dataset.name = `${kind} ${index + 1}, scrolls sideways`;
      scrollers.observe(element);
    });
  }
};
watch();

// The theme wraps tables later, and adds its buttons to a block of code in a group without a name.
new MutationObserver(() => {
  watch();
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((group) => {
    const code = group.closest("pre")?.querySelector("code") ?? group.parentElement.querySelector("code");
    group.setAttribute("aria-label", (code?.dataset.name ?? "Code").split(",")[0]);
  });
}).observe(document.body, { childList: true, subtree: true });

// "Copy the whole script" copies the blocks of the page, without what can be unfolded.
const button = document.querySelector("[data-copy-script]");
if (button) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const blocks = [...document.querySelectorAll(".highlight:not(.output) code")].filter((code) => !code.closest("details"));
    await navigator.clipboard.writeText(blocks.map((code) => code.innerText.trimEnd()).join("\n\n") + "\n");
    button.textContent = "Copied";
  });
}

// Copied text holds a formula as its LaTeX.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (!selection.rangeCount || !event.clipboardData) return;
  const range = selection.getRangeAt(0).cloneRange();
  const formulaAt = (node) => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement).closest("math");
  const [first, last] = [formulaAt(range.startContainer), formulaAt(range.endContainer)];
  if (first) range.setStartBefore(first);
  if (last) range.setEndAfter(last);
  const copied = document.createElement("div");
  copied.append(range.cloneContents());
  const formulas = copied.querySelectorAll("math");
  if (!formulas.length) return;
  for (const formula of formulas) {
    const tex = formula.querySelector("annotation").textContent.trim();
    formula.replaceWith(formula.getAttribute("display") === "block" ? `\n$$\n${tex}\n$$\n` : `$${tex}$`);
  }
  copied.style.cssText = "position: fixed; left: -9999px; white-space: pre-wrap";
  document.body.append(copied); // innerText needs a layout to put line breaks where the page has them
  event.clipboardData.setData("text/plain", copied.innerText.trim());
  copied.remove();
  event.preventDefault();
});
