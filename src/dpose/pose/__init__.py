"""The pose task: model, coordinate codec, skeletons, metrics, data and prediction."""
