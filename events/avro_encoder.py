"""baseline: fastavro encoder"""
import io, msgspec
from fastavro import schemaless_writer, parse_schema
def compile_encoder(schema, header):
    parsed=parse_schema(schema)
    def encode(event):
        fo=io.BytesIO(); fo.write(header)
        schemaless_writer(fo, parsed, msgspec.to_builtins(event, builtin_types=(bytes,)))
        return fo.getvalue()
    return encode
