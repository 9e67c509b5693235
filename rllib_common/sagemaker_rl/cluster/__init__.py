"""Formation of a Ray cluster from the instances of a SageMaker job."""
