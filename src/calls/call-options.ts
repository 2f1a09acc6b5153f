import type { DeepPartial, EntityManager, FindOptionsRelations, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import { isManager, kindOf, oneOf, RULE, type Rule, type Rules } from '../options'

/** Options of every operation. */
export interface ByOptions<Entity = ObjectLiteral> {
  /**
   * The unique text to use, by the name of its property, or by `as`. It is required if the entity has several. The
   * compiler does not catch a misspelt name, because no type contains the names that `as` sets. The call then throws
   * DeclarationError before any SQL.
   * @default the only one
   */
  // The second type takes every string, and lets an editor suggest the properties.
  readonly by?: Extract<keyof Entity, string> | (string & Record<never, never>)
}

/** The relations to load onto the result, as in `find`. Eager relations are always loaded. */
export interface LoadOptions<Entity = ObjectLiteral> {
  /**
   * Relations to load, in one more query for the whole call: `{ author: { pages: true } }`, or `['author.pages']`.
   * @default only the eager ones
   */
  readonly relations?: FindOptionsRelations<Entity> | readonly string[]
  /** Whether to load relations by a join, or each by a query of its own. @default the DataSource's strategy: join */
  readonly relationLoadStrategy?: 'join' | 'query'
}

/** The handling of a softly deleted row that holds the text. */
export type DeletedOption = 'return' | 'restore' | 'throw'

/** Options for declarations without `ignoreDeleted`, whose softly deleted rows hold their texts. */
export interface DeletedOptions {
  /**
   * The handling of a softly deleted row that holds the text. `'return'` returns it unchanged. `'restore'` clears its
   * delete date, as TypeORM's `restore()` does, and returns it as not created. `'throw'` throws TextTakenError with its
   * primary key. In a list, this applies to each row.
   *
   * @default 'return'
   */
  readonly deleted?: DeletedOption
}

/** A tree of relations to load. Some of them are also found or created. */
type NestedRelations<Entity> = {
  readonly [Name in keyof Entity]?:
    | 'findOrCreate'
    | (Name extends keyof FindOptionsRelations<Entity> ? FindOptionsRelations<Entity>[Name] : never)
}

/** Options for the relations of a row that is found or created. */
interface NestedOptions<Entity = ObjectLiteral> extends Omit<LoadOptions<Entity>, 'relations'> {
  /**
   * Relations to load, as in `find`.
   *
   * With `'findOrCreate'` for one relation, or for all, new objects in the values become rows too, with all objects
   * nested in them. Objects whose class has a unique text are found or created by it; others are saved. The result
   * contains them. A row that is found keeps its relations, nothing is created for it, and the result has the stored
   * relations.
   *
   * @default eager relations are loaded, and a new object in a relation is refused
   */
  readonly relations?: LoadOptions<Entity>['relations'] | NestedRelations<Entity> | 'findOrCreate'
}

/** The progress of a call with many inputs. */
export interface FindOrCreateProgress {
  /** Inputs whose result is known. They include the inputs of the other two counts. */
  readonly done: number
  /** Rows that were created. */
  readonly created: number
  /** Inputs that have an error at their index. */
  readonly rejected: number
}

/** Options for calls with many inputs. */
export interface ProgressOptions {
  /**
   * Once it is aborted, no further batch is sent. The call throws its `reason` when the batches at the server have
   * ended. Outside a transaction, written rows are committed. A caller's transaction stays usable.
   *
   * @default none
   */
  readonly signal?: AbortSignal | undefined
  /**
   * Called after each batch, and once if all inputs are refused before there is one. If it throws, the call ends as an
   * aborted signal ends it.
   *
   * @default none
   */
  readonly onProgress?: ((progress: FindOrCreateProgress) => void) | undefined
}

/** Options of `findOrCreate`. */
export interface FindOrCreateOptions<Entity = ObjectLiteral>
  extends ByOptions<Entity>, NestedOptions<Entity>, DeletedOptions {
  /**
   * Values that are used only when the row is created, in addition to the given ones, or a function that returns them.
   * The function is called only when the row is missing, once for all attempts. It may take its time, because the call
   * then holds neither a lock nor a pooled connection. If someone else creates the row meanwhile, that row is found and
   * the values are not used. If the function throws, the call throws that error and writes nothing.
   *
   * @default none
   */
  readonly create?: DeepPartial<Entity> | (() => DeepPartial<Entity> | Promise<DeepPartial<Entity>>)
}

/** Options of `findOrCreateMany`. */
export interface FindOrCreateManyOptions<Entity = ObjectLiteral>
  extends ByOptions<Entity>, NestedOptions<Entity>, DeletedOptions, ProgressOptions {
  /**
   * Further values of a missing row, as in `findOrCreate`. A function gets an input and its index. It is called for
   * missing inputs in their order, one at a time, before the first row is written. For equal texts it is called for the
   * first. If it throws, its input has the error, and no other input is affected. It cannot be combined with
   * `relations: 'findOrCreate'`.
   *
   * @default none
   */
  readonly create?:
    | DeepPartial<Entity>
    | ((values: DeepPartial<Entity>, index: number) => DeepPartial<Entity> | Promise<DeepPartial<Entity>>)
}

/** Options for a row that is found by its text, and not created. */
export interface FoundOptions<Entity = ObjectLiteral> extends ByOptions<Entity> {
  /** Whether to find the row even if it is softly deleted. @default false, as in `find` */
  readonly withDeleted?: boolean
}

/** Options of `deleteByText`. */
export interface DeleteByTextOptions<Entity = ObjectLiteral> extends FoundOptions<Entity> {}

/** Options for the server from which rows are read. */
interface ReplicaOptions {
  /**
   * Whether to read from a replica, if the DataSource has any (`replication`). A replica may lack the latest rows. A
   * manager with a connection of its own, as in a transaction, still reads from that connection.
   *
   * @default false
   */
  readonly replica?: boolean
}

/** Options of `existsByText` and `countByText`. */
export interface CountByTextOptions<Entity = ObjectLiteral> extends FoundOptions<Entity>, ReplicaOptions {}

/** Options of `findOneByText`. */
export interface FindOneByTextOptions<Entity = ObjectLiteral>
  extends FoundOptions<Entity>, ReplicaOptions, LoadOptions<Entity> {}

/** A property, or a property of an embedded: `meta.size`. */
type PropertyPath<Entity> = Extract<keyof Entity, string> | `${Extract<keyof Entity, string>}.${string}`

/**
 * Returns SQL over two rows, with their columns by property. `stored` is the row that exists. `given` is the row that
 * would be created, like `EXCLUDED` in SQL. The SQL must not contain changing values: each SQL is a statement.
 *
 * @example
 * ({ stored, given }) => `greatest(${stored.score}, ${given.score})`
 */
export type SqlOfRow<Entity = never> = (rows: {
  readonly stored: { readonly [Path in PropertyPath<Entity>]: string }
  readonly given: { readonly [Path in PropertyPath<Entity>]: string }
}) => string

/** Options of `upsertByText`. */
export interface UpsertByTextOptions<Entity = ObjectLiteral> extends ByOptions<Entity>, LoadOptions<Entity> {
  /**
   * Properties that an existing row takes over from the values, if these contain them. A relation means its join
   * columns, an embedded all of its columns. `[]` updates nothing, as in `findOrCreate`. An object has `true` for such
   * a property, and SQL for others: `{ title: true, hits: ({ stored }) => \`${stored.hits} + 1\` }`.
   *
   * @default every column in the values except text, scope, primary key, generated columns, version, the dates of
   * creation, update and deletion, and columns declared with `update: false`. The latter two dates can be listed.
   */
  readonly update?:
    | readonly PropertyPath<Entity>[]
    | { readonly [Path in PropertyPath<Entity>]?: true | SqlOfRow<Entity> }
  /**
   * Values that are used only when the row is created, beside those of the rows. `update` takes over none of them.
   *
   * @default none
   */
  readonly create?: DeepPartial<Entity>
  /**
   * SQL of a condition, for instance that the given row is newer. If it is not true for a row, the row stays unchanged,
   * and is returned like any other.
   *
   * @default every row is updated
   * @example
   * where: ({ stored, given }) => `${stored.fetchedAt} < ${given.fetchedAt}`
   */
  readonly where?: SqlOfRow<Entity>
  /**
   * Whether to leave a row unchanged if it has all the values already, including its version and its update date.
   * @default false
   */
  readonly skipUpdateIfNoValuesChanged?: boolean
}

const isStrings = (value: unknown): boolean => Array.isArray(value) && value.every((one) => typeof one === 'string')
/** Refuses a promise, because it shows that a function was called instead of passed. */
/** Refuses a Map, a Set or a Date, whose entries would be ignored, and a promise. */
const isValues = (value: unknown): boolean =>
  Object.prototype.toString.call(value) === '[object Object]' && !('then' in (value as object))

/** The value that selects all relations, or one of them, to be found or created. */
const FIND_OR_CREATE = 'findOrCreate'

/** Returns whether relations are found or created, and not only loaded. */
export const namesFindOrCreate = (relations: unknown): boolean =>
  relations === FIND_OR_CREATE ||
  (typeof relations === 'object' && relations !== null && Object.values(relations).some(namesFindOrCreate))

const isRelations = (value: unknown): boolean => isStrings(value) || isValues(value)
const RELATIONS = 'an object as find() takes it, or a list of paths'

const BY: Rules<ByOptions> = {
  by: { takes: (value) => typeof value === 'string', expected: 'the name of a unique text' },
}

const relationLoadStrategy: Rule = {
  takes: (value) => value === 'join' || value === 'query',
  expected: "'join' or 'query'",
}

const LOAD: Rules<LoadOptions> = {
  relations: { takes: (value) => isRelations(value) && !namesFindOrCreate(value), expected: RELATIONS },
  relationLoadStrategy,
}

const FOUND: Rules<FoundOptions> = { ...BY, withDeleted: RULE.boolean }
const COUNT: Rules<CountByTextOptions> = { ...FOUND, replica: RULE.boolean }

const NESTED_RULES: Rules<NestedOptions> = {
  relations: {
    takes: (value) => value === FIND_OR_CREATE || isRelations(value),
    expected: `'findOrCreate', ${RELATIONS}`,
  },
  relationLoadStrategy,
}

const DELETED: Rules<DeletedOptions> = {
  deleted: oneOf(...(['return', 'restore', 'throw'] satisfies DeletedOption[])),
}

const PROGRESS: Rules<ProgressOptions> = {
  signal: RULE.signal,
  onProgress: RULE.function,
}

const create: Rule = {
  takes: (value) => typeof value === 'function' || isValues(value),
  expected: 'an object with values, or a function that returns one',
}

/** The rules for the options of the operations by text. */
export const CALL_RULES: {
  readonly hashOf: Rules<ByOptions>
  readonly findOrCreate: Rules<FindOrCreateOptions>
  readonly findOrCreateMany: Rules<FindOrCreateManyOptions>
  readonly findOneByText: Rules<FindOneByTextOptions>
  readonly existsByText: Rules<CountByTextOptions>
  readonly countByText: Rules<CountByTextOptions>
  readonly deleteByText: Rules<DeleteByTextOptions>
  readonly upsertByText: Rules<UpsertByTextOptions>
} = {
  hashOf: BY,
  findOrCreate: { ...BY, create, ...DELETED, ...NESTED_RULES },
  findOrCreateMany: { ...BY, create, ...DELETED, ...NESTED_RULES, ...PROGRESS },
  findOneByText: { ...COUNT, ...LOAD },
  existsByText: COUNT,
  countByText: COUNT,
  deleteByText: FOUND,
  upsertByText: {
    ...BY,
    update: {
      takes: (value) =>
        isStrings(value) ||
        (isValues(value) && Object.values(value as object).every((one) => one === true || typeof one === 'function')),
      expected: 'a list of property names, or an object with true or a function for each',
    },
    create: { takes: isValues, expected: 'an object with values' },
    where: RULE.function,
    skipUpdateIfNoValuesChanged: RULE.boolean,
    ...LOAD,
  },
}

/**
 * The values that an operation takes: properties of the entity, and the text that `by` names. The type also refuses
 * other properties of a variable, where TypeScript alone checks only a literal.
 *
 * @typeParam Given the type of the caller's values, inferred
 * @typeParam By the value of the option `by`, inferred; string if it is left out or not known
 */
export type GivenValues<Entity, Given, By = string> = DeepPartial<Entity> &
  NoOthers<Entity, Given> &
  WithText<Entity, Given, By>

// A branch uses `Given`, so that it is inferred. If nothing is wrong, a literal is checked against the entity alone.
export type NoOthers<Entity, Given> = keyof Given extends keyof Entity
  ? unknown
  : string extends keyof Given
    ? unknown
    : Given & { readonly [Name in Exclude<keyof Given, keyof Entity>]: NoPropertyOfTheEntity<Name> }

declare const misspelt: unique symbol

/** No value has this type. The compiler's message contains its name, and therefore the property. */
export interface NoPropertyOfTheEntity<Name> {
  readonly [misspelt]: Name
}

/** Requires the text that `by` names. Without `by`, no type knows which property is a unique text. */
type WithText<Entity, Given, By> = string extends By | keyof Entity
  ? unknown
  : By extends keyof Given
    ? { readonly [Name in By & NoTexts<Entity>]: NoTextOfTheEntity<Name> }
    : { readonly [Name in By & keyof Entity]: Entity[Name] }

/** No value has this type. The compiler's message contains its name, and therefore the value of `by`. */
interface NoTextOfTheEntity<Name> {
  readonly [misspelt]: Name
}

/** The properties that cannot hold a text. */
type NoTexts<Entity> = {
  [Name in keyof Entity]-?: NonNullable<Entity[Name]> extends number | bigint | boolean | Date ? Name : never
}[keyof Entity]

/** Options whose `by` is inferred. */
export type Naming<By, Options> = Options & { readonly by?: By | undefined }

/** @throws DeclarationError for a value other than the EntityManager of a DataSource that was initialized */
export function requireManager(manager: EntityManager): void {
  const given: unknown = manager
  if (isManager(given)) {
    const { isInitialized, entityMetadatas } = manager.connection
    // A destroyed DataSource keeps its entities, and has an error of its own.
    if (isInitialized || entityMetadatas.length > 0) return
    throw new DeclarationError('The DataSource is not initialized. Await dataSource.initialize() before the call.')
  }
  const own = typeof given === 'object' && given !== null && 'manager' in given && isManager(given.manager)
  throw new DeclarationError(
    `Expected an EntityManager as the first argument, got ${kindOf(given)}. ` +
      (own ? 'Pass its property "manager".' : 'Pass dataSource.manager, or the manager of your transaction.'),
  )
}

/** @throws DeclarationError for anything but an array */
export function requireArray(inputs: readonly unknown[]): void {
  if (Array.isArray(inputs)) return
  throw new DeclarationError(
    `Expected an array of objects, got ${kindOf(inputs)}. Pass an array, for instance [...inputs].`,
  )
}

/**
 * @param length the length of an entry
 * @throws DeclarationError for a value other than a non-empty array of arrays with this length
 */
export function requireEntries(entries: readonly unknown[], length: number): void {
  const wrong = entries.findIndex((entry) => !Array.isArray(entry) || entry.length !== length)
  if (entries.length > 0 && wrong === -1) return
  throw new DeclarationError(
    `Expected a list of ${length === 2 ? '[entity, values]' : '[entity, id, changes]'}, got ` +
      `${entries.length === 0 ? 'an empty array' : `an array with ${kindOf(entries[wrong])}`}.`,
  )
}
