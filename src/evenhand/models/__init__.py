"""What a fitted recommender is: scores for a whole catalogue, exact top-k, fold-in, and the folder on disk."""
