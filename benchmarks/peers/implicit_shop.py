"""A shop's raw log to in-stock lists with titles, as one would write it with pandas and implicit."""

import sys

import numpy as np
import pandas as pd
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares


def main(log: str, stock: str, out: str, k: int) -> None:
    rows = pd.read_csv(log, dtype={"sku": str}).dropna(subset=["customer_id", "sku"])
    net = rows.groupby(["customer_id", "sku"], as_index=False)["qty"].sum().query("qty > 0")
    users, items = net["customer_id"].astype("category"), net["sku"].astype("category")
    cells = (np.ones(len(net), np.float32), (users.cat.codes, items.cat.codes))
    matrix = sp.csr_matrix(cells, shape=(len(users.cat.categories), len(items.cat.categories)))
    model = AlternatingLeastSquares(factors=64, random_state=0)
    model.fit(matrix, show_progress=False)
    catalogue = pd.read_csv(stock, dtype={"sku": str}, encoding="latin-1").set_index("sku")
    there = catalogue["stock"].reindex(items.cat.categories).fillna(0).to_numpy() > 0
    everyone = np.arange(matrix.shape[0])
    best, scores = model.recommend(everyone, matrix, N=k, filter_items=np.flatnonzero(~there))
    skus = items.cat.categories.to_numpy()[best.ravel()]
    lists = pd.DataFrame({"customer_id": users.cat.categories.to_numpy()[np.repeat(everyone, k)], "sku": skus})
    lists["title"] = catalogue["name"].reindex(skus).to_numpy()
    lists["score"] = scores.ravel()
    lists.to_csv(out, index=False)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
