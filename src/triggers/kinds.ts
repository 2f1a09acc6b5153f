import type { Finding } from '../errors'
import type { AttachedKind } from '../sql/library'
import type { TextTable } from '../sql/text-table'
import { type Digest, digests } from '../text/digest'
import { normalizerLabel, toNormalizer } from '../text/normalizer'

/**
 * A declaration of a text, a name or a number, as attach writes it into the argument of its main trigger. Its kind has
 * further keys. src/library/report.sql describes those that all kinds have.
 */
export interface Declared {
  readonly kind: AttachedKind
  readonly name: string
  readonly protocol: number
  /** The oldest protocol of a release that can work with these triggers. @default protocol */
  readonly serves?: number
  /** The schema and the table for which attach made the code. */
  readonly on?: readonly [schema: string, table: string]
  /** The types of the triggers that attach made, and the digest of the code that they run. */
  readonly triggers?: readonly number[]
  readonly bodies?: string
}

/** What a guard enforces, and what the rows depend on: the second argument of attach. */
export interface GuardDeclaration
  extends
    Declared,
    Pick<
      TextTable,
      'index' | 'check' | 'scope' | 'hash' | 'number' | 'chained' | 'nullable' | 'immutable' | 'maxChainLength'
    > {
  readonly kind: 'text'
  readonly text: readonly string[]
  /** The prefixes of the columns, if one has any. */
  readonly prefixes: readonly string[]
  /** The name of the digest. */
  readonly digest: string
  /** For a digest of the user's own, the hash of the row NEW, as SQL. */
  readonly hashed?: string
  readonly normalizers: readonly string[]
  readonly deleted?: string
  readonly spread?: boolean
  /** The first part of the names of functions and triggers. If undefined, it consists of the table and the text. */
  readonly guard?: string
}

/** The names of the rows of a table, or of none for the table of names itself. */
export interface NamesDeclaration extends Declared {
  readonly kind: 'name'
  /** The table of names, as SQL. It has a schema unless that is the schema of the table. */
  readonly in: string
  /** The columns of the primary key, in the order of the values of stored keys. */
  readonly key: readonly string[]
  readonly names: readonly {
    readonly column: string
    readonly namespace: string
    readonly former?: 'reserved' | 'redirect'
    /** How long a former name is kept, as a PostgreSQL interval. */
    readonly for?: string
    readonly normalizer?: string
  }[]
  /** For a digest of the user's own, the hash of the text `n.text`, as SQL. */
  readonly hashed?: string
  readonly citus?: 'local'
  /** The first part of the names of functions and triggers. If undefined, it consists of the table. */
  readonly guard?: string
}

/** What all declarations of a kind have in common. */
interface Kind<D extends Declared> {
  /** The version that attach writes. docs/upgrading.md explains when another one is needed. */
  readonly protocol: number
  /** The object that a finding names. */
  readonly object: Finding['object']
  readonly required: readonly (keyof D)[]
  /** Returns what attach fills in. Undefined if it refuses the declaration. */
  readonly defaults: (given: Partial<D>) => Partial<D> | undefined
  /** The columns by their role, in the order in which `UPDATE OF` names them. */
  readonly columns: (whole: D) => Readonly<Record<string, string>>
  /** The keys that change only what the triggers do. While the rows remain, attach replaces the triggers in place. */
  readonly ofTriggers: readonly (keyof D)[]
  /** The `pg_trigger.tgtype` of the trigger whose argument is the whole declaration. */
  readonly main: number
}

const NONE = normalizerLabel(toNormalizer(undefined))

const isNames = (value: unknown): value is readonly string[] =>
  Array.isArray(value) && value.every((one) => typeof one === 'string')

/** Columns by their role. */
const numbered = (role: string, names: readonly string[]): [string, string][] =>
  names.map((name, position) => [`${role} ${position}`, name])

const TEXT: Kind<GuardDeclaration> = {
  protocol: 1,
  object: 'guard',
  required: ['name', 'text', 'index'],
  defaults: ({ name, text = [], scope = [], prefixes = [], normalizers = [] }) =>
    [text, scope, prefixes, normalizers].every(isNames)
      ? {
          scope: [],
          hash: `${name}Hash`,
          number: `${name}HashNumber`,
          chained: `${name}HashChained`,
          check: '',
          nullable: false,
          immutable: false,
          maxChainLength: 100,
          digest: 'md5',
          prefixes: text.map(() => ''),
          normalizers: text.map(() => NONE),
        }
      : undefined,
  columns: ({ text, scope, hash, number, chained, deleted }) =>
    Object.fromEntries([
      ...numbered('text', text),
      ...numbered('scope', scope),
      ...Object.entries({ hash, number, chained, ...(deleted === undefined ? {} : { deleted }) }),
    ]),
  ofTriggers: ['maxChainLength', 'immutable'],
  main: 23,
}

const NAME: Kind<NamesDeclaration> = {
  protocol: 1,
  object: 'trigger',
  required: ['names'],
  defaults: ({ names = [], key = [] }) =>
    isNames(key) && Array.isArray(names) && isNames(names.map((one: { readonly column?: unknown }) => one.column))
      ? { name: 'names', in: '"names"', key: [] }
      : undefined,
  columns: ({ key, names }) =>
    Object.fromEntries([
      ...key.map((name): [string, string] => [`key ${name}`, name]),
      ...names.flatMap(({ column }) => (key.includes(column) ? [] : [[column, column]])),
    ]) as Record<string, string>,
  ofTriggers: ['in', 'key', 'names', 'hashed', 'citus'],
  main: 32,
}

/** How rows are numbered: the second argument of attach. */
export interface NumberedDeclaration extends Declared {
  readonly kind: 'number'
  /** The column. */
  readonly number: string
  /** The type of the column, which attach reads from the table. */
  readonly type: string
  readonly index: string
  readonly scope: readonly string[]
  readonly count: boolean
  readonly reuse: boolean
  readonly start: number
  /** With count, a row with a value in this column is not counted. */
  readonly deleted?: string
  readonly citus?: boolean
  /** The first part of the names of function, triggers and table of scopes. */
  readonly guard?: string
}

const NUMBER: Kind<NumberedDeclaration> = {
  protocol: 1,
  object: 'trigger',
  required: ['name', 'index'],
  defaults: ({ name, scope = [] }) =>
    isNames(scope)
      ? { number: name ?? '', type: 'integer', scope: [], count: false, reuse: true, start: 1 }
      : undefined,
  columns: ({ scope, number, count, deleted }) =>
    Object.fromEntries([
      ...numbered('scope', scope),
      ['number', number],
      ...(count && deleted !== undefined ? [['deleted', deleted]] : []),
    ]) as Record<string, string>,
  ofTriggers: ['count', 'reuse', 'start', 'deleted', 'type', 'index'],
  main: 7,
}

const KINDS = { text: TEXT, name: NAME, number: NUMBER } as unknown as Readonly<Partial<Record<string, Kind<Declared>>>>

/** Returns what the declarations of a kind have in common. Undefined for a kind that this release does not know. */
export const kindOfDeclaration = ({ kind }: Pick<Declared, 'kind'>): Kind<Declared> | undefined =>
  Object.hasOwn(KINDS, kind) ? KINDS[kind] : undefined

/** The columns of a declaration by their role, in the order in which `UPDATE OF` names them. */
export const columnsOf = (whole: Declared): Readonly<Record<string, string>> =>
  kindOfDeclaration(whole)?.columns(whole) ?? {}

/** Fills in what a declaration leaves out. Undefined if attach writes no such declaration. */
export function wholeDeclaration<D extends Declared>(given: Pick<D, 'kind' | 'name'> & Partial<D>): D | undefined {
  const kind = kindOfDeclaration(given)
  const filled = typeof given.name === 'string' ? kind?.defaults(given as D) : undefined
  return filled && ({ protocol: kind?.protocol, ...filled, ...given } as unknown as D)
}

/** The keys that attach adds. */
export const MADE: readonly string[] = ['protocol', 'serves', 'triggers', 'bodies', 'on', 'kept', 'columns', 'as_of']

/** Leaves out what `wholeDeclaration` fills in, and what attach adds. */
export function shortDeclaration(all: Declared): object {
  const required: ReadonlySet<string> = new Set(kindOfDeclaration(all)?.required)
  const filled: Readonly<Record<string, unknown>> = { ...kindOfDeclaration(all)?.defaults(all) }
  return Object.fromEntries(
    Object.entries(all).filter(
      ([key, value]) =>
        required.has(key) ||
        (![...MADE, 'kind'].includes(key) && JSON.stringify(value) !== JSON.stringify(filled[key])),
    ),
  )
}

/** Whether a digest is none of ours. Compared by name and SQL, because each copy of this package has its own objects. */
export const isOwnDigest = ({ name, sql }: Digest): boolean =>
  Object.values(digests).every((one) => one.name !== name || one.sql('t') !== sql('t'))
