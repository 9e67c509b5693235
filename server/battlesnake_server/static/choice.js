// Shows another tournament as soon as it is chosen.

for (const form of document.querySelectorAll("form[data-submit-on-change]")) {
  form.addEventListener("change", () => form.requestSubmit());
}
