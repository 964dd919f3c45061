"""The posterior from one observed token, its scores integrated out: the law of its variance, the likelihood, the grid."""
