// The filter of the operator page: shows the rows whose name contains what is typed.
const filter = document.getElementById("operator-filter");
const count = document.getElementById("operator-count");
const rows = [...document.querySelectorAll("#operator-table tbody tr")];

function show() {
  const wanted = filter.value.trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    shown += !row.hidden;
  }
  count.textContent = `${shown} of ${rows.length} operators`;
}

filter.addEventListener("input", show);
show();
