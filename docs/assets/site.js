// Boxes that scroll can be reached by the keyboard.
function focusable() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  }
}

// The theme gives the search no name, and the buttons of all blocks of code the same one.
function named() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((buttons, i) => buttons.setAttribute("aria-label", `Code block ${i + 1}`));
}

addEventListener("load", focusable);
addEventListener("load", named);
addEventListener("resize", focusable);
