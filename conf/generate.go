package conf

//go:generate go run ./internal/reference ../docs/configuration.md ../conf/hawser.example.yaml
