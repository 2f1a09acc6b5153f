import type { ColumnOptions, ColumnType } from 'typeorm'

/** A column of one type, and values that a caller might give for it: right ones, and some that are refused. */
export interface TypedColumn {
  readonly options: ColumnOptions & { readonly type: ColumnType }
  readonly values: readonly unknown[]
  /** The extension that brings the type. */
  readonly extension?: string
}

type Options = Omit<ColumnOptions, 'type'>

const of = (type: string, values: readonly unknown[], options: Options = {}): TypedColumn => ({
  options: { ...options, type: type as ColumnType, nullable: true },
  values,
})
const by = (extension: string, column: TypedColumn): TypedColumn => ({ ...column, extension })
const all = (types: readonly string[], values: readonly unknown[], options: Options = {}): TypedColumn[] =>
  types.map((type) => of(type, values, options))
const arrays = (type: string, elements: readonly unknown[], options: Options = {}): TypedColumn => ({
  ...of(type, elements, { ...options, array: true }),
  values: [[], [null], elements, ...elements.map((element) => [element, null, element])],
})

const TEXTS = ['', 'a', 'NULL', 'null', '{}', '{a,b}', '"', '\\', "'", 'a,b', ' a ', 'ä€😀', '\n', 'abc  ', 'abcdef']
const DATES = [new Date('2024-02-29T12:34:56.789Z'), new Date('1969-12-31T23:59:59.001Z'), new Date(-7e13)]
const TIMES = [...DATES, '2024-01-01 00:00:00.123456', 'infinity', '-infinity', '0044-03-15 12:00:00 BC']
const INTEGERS = [0, 1, -1, '7', 42n, true, 2 ** 15, 2 ** 31, '9223372036854775807', 1.5, 'one']
const NUMBERS = [...INTEGERS, NaN, Infinity, -Infinity, 0.1, 1e-7, 1.235, '1.235', '123456789.99', 1e300, -0]
const JSONS = [{ a: [1, 'x', null] }, [], [1, [2]], 'text', 5, true, { a: '\u0000' }, [{ b: 'a"\\' }], { big: 1n }]

/** Every type that TypeORM supports on Postgres; a test compares the list with the driver's own. */
export const TYPED_COLUMNS: readonly TypedColumn[] = [
  ...all(['int', 'int2', 'int4', 'int8', 'smallint', 'integer', 'bigint'], INTEGERS),
  ...all(['decimal', 'numeric'], NUMBERS),
  of('numeric', NUMBERS, { precision: 10, scale: 2 }),
  ...all(['real', 'float', 'float4', 'float8', 'double precision'], NUMBERS),
  of('money', [1, '12.34', '$1,000.55', NaN]),
  ...all(['character varying', 'varchar', 'character', 'char'], TEXTS, { length: 5 }),
  of('text', TEXTS),
  by('citext', of('citext', TEXTS)),
  by('hstore', of('hstore', [{ a: 'x', 'b"\\': null }, {}, 'a=>1', 'no'], { hstoreType: 'object' })),
  of('bytea', [Buffer.from([0, 255, 92, 34]), Buffer.alloc(0), new Uint8Array([1, 2]), '\\x00ff', 'abc', '\\']),
  of('bit', ['101', '1', '1111', 'x'], { length: 3 }),
  ...all(['varbit', 'bit varying'], ['101', '', '111111'], { length: 5 }),
  ...all(['timetz', 'time with time zone'], ['12:34:56.789+02', '24:00:00Z', DATES[0]]),
  ...all(['timestamptz', 'timestamp', 'timestamp without time zone', 'timestamp with time zone'], TIMES),
  ...all(['timestamptz', 'timestamp'], TIMES, { precision: 0 }),
  of('date', [...DATES, '2024-02-29', 'infinity', '0044-03-15 BC']),
  ...all(['time', 'time without time zone'], ['12:34:56.789', '24:00', DATES[0]]),
  of('interval', ['1 day 02:03:04.5', 'P1Y2M', '-1 mon', { days: 1, hours: 2 }]),
  ...all(['bool', 'boolean'], [true, false, 't', 'off', 1, 0, 'maybe']),
  of('enum', ['red', 'gr"een', 'no', 7, '7'], { enum: ['red', 'gr"een', '7'] }),
  of('point', ['(1,2)', { x: 1.5, y: -2 }, '1,2']),
  of('line', ['{1,2,3}', '[(0,0),(1,1)]']),
  of('lseg', ['[(0,0),(1,1)]']),
  of('box', ['((1,1),(0,0))', '(0,0),(1,1)']),
  of('path', ['[(0,0),(1,1)]', '((0,0),(1,1))']),
  of('polygon', ['((0,0),(1,1),(1,0))']),
  of('circle', ['<(0,0),1>', { x: 1, y: 2, radius: 3 }]),
  of('cidr', ['10.0.0.0/8', '::/0', '10.0.0.1/8']),
  of('inet', ['10.0.0.1/8', '::1', 'x']),
  of('macaddr', ['08:00:2b:01:02:03', '08-00-2b-01-02-03']),
  of('macaddr8', ['08:00:2b:01:02:03:04:05']),
  of('tsvector', ["'a':1 'b':2", 'fat cat']),
  of('tsquery', ['a & b', "'x y' | z"]),
  of('uuid', ['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{a0eebc999c0b4ef8bb6d6bb9bd380a11}', Buffer.alloc(16, 7)]),
  of('xml', ['<a b="1">x</a>', 'text', '<a>']),
  ...all(['json', 'jsonb'], JSONS),
  of('jsonpath', ['$.a[*] ? (@ > 1)', '$']),
  ...all(['int4range', 'int8range', 'numrange'], ['[1,5)', '(,5]', 'empty', '[5,1]']),
  ...all(['tsrange', 'tstzrange'], ['[2024-01-01 00:00,2024-01-02 00:00)', '(,)']),
  of('daterange', ['[2024-01-01,2024-01-31]', 'empty']),
  ...all(['int4multirange', 'int8multirange', 'nummultirange'], ['{[1,2),[5,6)}', '{}']),
  ...all(['tsmultirange', 'tstzmultirange'], ['{[2024-01-01 00:00,2024-01-02 00:00)}']),
  of('datemultirange', ['{[2024-01-01,2024-01-31]}']),
  by('postgis', of('geometry', [{ type: 'Point', coordinates: [1, 2.5] }, { type: 'Nothing' }])),
  by(
    'postgis',
    of('geometry', [{ type: 'Point', coordinates: [13.4, 52.5] }], { spatialFeatureType: 'Point', srid: 4326 }),
  ),
  by('postgis', of('geography', [{ type: 'LineString', coordinates: [[0, 0], [1, 1]] }], { srid: 4326 })), // prettier-ignore
  by('cube', of('cube', [[1, 2, 3], [0.5], []])),
  by('ltree', of('ltree', ['a.b.c', 'a b..c', ''])),
  by('vector', of('vector', [[1, 2, 3], '[1,2,3]', [1]], { length: 3 })),
  by('vector', of('halfvec', [[1, 2, 3], '[0.5,2,3]'], { length: 3 })),
  of('simple-array', [['a', 'b'], []]),
  of('simple-json', [{ a: 1 }, [1]]),
  ...['int', 'bigint', 'numeric', 'float8'].map((type) => arrays(type, [1, '2', 3n, -4])),
  arrays('numeric', [1.235, '7'], { precision: 10, scale: 2 }),
  ...['text', 'varchar'].map((type) => arrays(type, TEXTS)),
  ...['varchar', 'char'].map((type) => arrays(type, TEXTS, { length: 5 })),
  arrays('bytea', [Buffer.from([0, 255, 92]), new Uint8Array([9]), '\\x01']),
  ...['timestamp', 'timestamptz'].map((type) => arrays(type, DATES)),
  arrays('date', ['2024-02-29', 'infinity']),
  arrays('time', ['12:00']),
  arrays('boolean', [true, false]),
  arrays('uuid', ['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11']),
  arrays('inet', ['::1']),
  arrays('interval', ['1 day']),
  arrays('bit', ['101', '1'], { length: 3 }),
  arrays('enum', ['red', 'gr"een', 'no'], { enum: ['red', 'gr"een'] }),
  arrays('int4range', ['[1,2)', 'empty']),
  arrays('json', [{ a: 1 }, '{"b":"\\""}']),
  arrays('jsonb', [{ a: [1] }, '[]']),
  by('cube', of('cube', [[[1, 2], [3]], []], { array: true })), // prettier-ignore
]

/** Given for any column: wrong for most, and then refused in the same way by whatever stores it. */
export const ODD_VALUES: readonly unknown[] = [
  null,
  new Date(NaN),
  ['x', 'y'],
  [],
  [
    [1, 2],
    [3, 4],
  ],
  [[[]]],
  { a: 1 },
  {},
  1n,
  'x\u0000',
  Buffer.from('1'),
  Buffer.from([0, 0, 0, 1]),
  Symbol('s'),
  { toPostgres: () => '1' },
  { toJSON: () => undefined },
]
