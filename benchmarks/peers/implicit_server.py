"""implicit's `recommend` behind FastAPI, as one would write it: python implicit_server.py VECTORS.npz KNOWN.npz PORT.

The vectors are those of the evenhand model beside it, so that both compute the same lists.
"""

import sys

import numpy as np
import scipy.sparse as sp
import uvicorn
from fastapi import FastAPI, HTTPException
from implicit.cpu.als import AlternatingLeastSquares

vectors, known = np.load(sys.argv[1]), np.load(sys.argv[2])
items = vectors["item_ids"]
places = {str(user): place for place, user in enumerate(vectors["user_ids"])}
rows = sp.csr_matrix((np.ones(len(known["items"]), np.float32), known["items"], known["indptr"]))
rows.resize(len(places), len(items))
model = AlternatingLeastSquares(factors=vectors["item_vectors"].shape[1], num_threads=1)
model.user_factors, model.item_factors = vectors["user_vectors"], vectors["item_vectors"]
app = FastAPI()


@app.get("/recommend")
def recommend(user: str, k: int = 20) -> dict:
    if user not in places:
        raise HTTPException(404, "unknown user")
    place = places[user]
    found, scores = model.recommend(place, rows[place], N=k)
    listed = zip(items[found].tolist(), scores.tolist(), strict=True)
    return {"user": user, "items": [{"item": item, "score": score} for item, score in listed]}


@app.get("/health")
async def health() -> dict:
    return {"status": "ok"}


uvicorn.run(app, port=int(sys.argv[3]), log_level="warning", access_log=False)
