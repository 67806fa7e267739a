module foreign

go 1.24
