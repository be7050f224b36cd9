/* What the theme leaves undone for keyboards and screen readers. */

// The visible words are the name: a label that says something else hides them.
function unlabel() {
  for (const element of document.querySelectorAll("details.hide > summary, .search-button-field")) {
    element.removeAttribute("aria-label");
  }
  // These three are pictures of the button's own state; its label says what it does.
  for (const icon of document.querySelectorAll(".theme-switch-button .theme-switch")) {
    icon.setAttribute("aria-hidden", "true");
    icon.removeAttribute("title");
    icon.querySelector("title")?.remove();
  }
}

// A list's parts must be its entries, and docutils puts links beside them.
function mendRoles() {
  for (const list of document.querySelectorAll(".citation-list[role], .citation[role]")) {
    list.removeAttribute("role");
  }
}

// What scrolls sideways can be scrolled with the arrow keys.
function makeScrollable() {
  for (const box of document.querySelectorAll(".bd-article table, .bd-article pre, div.math")) {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
    } else {
      box.removeAttribute("tabindex");
    }
  }
}

window.addEventListener("load", () => {
  unlabel();
  mendRoles();
  makeScrollable();
});
window.addEventListener("resize", makeScrollable);
// A folded table may have had no width until now; Chromium gives it one. The event does not bubble.
document.addEventListener("toggle", makeScrollable, true);
