import {
  type DataSource,
  type EntityMetadata,
  type FindOperator,
  InstanceChecker,
  type ObjectLiteral,
  type QueryRunner,
} from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import {
  isStored,
  operatorTexts,
  storedAny,
  storedCopy,
  storedEqual,
  storedIn,
  storedJunction,
  storedNot,
  storedRaw,
} from '../registry/operators'
import { entityTable } from '../registry/declarations'
import {
  dataSourceOf,
  type Declaration,
  type NameDeclaration,
  namesOfTable,
  numbersOfTable,
  registry,
  rootOf,
  textsOfTable,
} from '../registry/registry'
import { knownReady, refuseSpread, tablesBeside } from '../schema/readiness'
import type { Query } from '../sql/catalog'
import { equalsNoText, orNoHash } from '../sql/find'
import { hasCitus, spreadOf } from '../sql/spread'
import { hashOfTexts, tableName } from '../sql/text-table'
import { normalizeText } from '../text/normalizer'
import { markFor } from './seen-tables'
import { withChangedHashes } from './subscriber'

/** The protected parts of TypeORM's query builders that process conditions. */
interface QueryBuilder extends Record<(typeof DERIVING)[number], (...args: unknown[]) => unknown> {
  execute(): Promise<unknown>
  /** The values of an UPDATE. */
  getValueSet(): ObjectLiteral
  createParameter(value: unknown): string
  readonly queryRunner?: QueryRunner
  readonly expressionMap: {
    readonly queryType?: string
    readonly valuesSet?: unknown
    readonly mainAlias?: { readonly hasMetadata: boolean; readonly metadata: EntityMetadata }
  }
  /** Criteria, and the arguments of `where()`, `andWhere()` and `orWhere()`, also within brackets. */
  getWhereCondition(where: unknown): unknown
  /** Find options. The method calls itself for lists, embeddeds and related entities. */
  buildWhere(where: ObjectLiteral, metadata: EntityMetadata, alias: string, embedPrefix?: string): string
}

interface QueryBuilderClass {
  new (...args: unknown[]): QueryBuilder
  readonly prototype: QueryBuilder
}

const REWRITES = Symbol.for('typeorm-unique-text.rewrites')

const subclasses = new WeakMap<Function, QueryBuilder>()

/**
 * Makes the conditions of a query builder use the hash. The builder becomes an instance of a subclass, and so do the
 * builders that it creates, because TypeORM's `clone()` and `createQueryBuilder()` use its class.
 */
export function rewriting<T>(builder: T): T {
  if (typeof builder !== 'object' || builder === null || REWRITES in builder) return builder
  const { constructor } = builder
  const prototype = subclasses.get(constructor) ?? subclassOf(constructor as QueryBuilderClass).prototype
  subclasses.set(constructor, prototype)
  return Object.setPrototypeOf(builder, prototype) as T
}

function subclassOf(Base: QueryBuilderClass): QueryBuilderClass {
  class Rewriting extends Base {
    override getWhereCondition(where: unknown): unknown {
      const { mainAlias } = this.expressionMap
      if (!mainAlias?.hasMetadata) return super.getWhereCondition(where)
      const rewrite = (one: unknown): unknown => (isConditions(one) ? rewriteDeep(one, mainAlias.metadata) : one)
      return super.getWhereCondition(Array.isArray(where) ? where.map(rewrite) : rewrite(where))
    }

    override async execute(): Promise<unknown> {
      const { mainAlias, queryType } = this.expressionMap
      if (queryType !== 'select' && mainAlias?.hasMetadata) await requirePlace(this, mainAlias.metadata)
      return await super.execute()
    }

    override getValueSet(): ObjectLiteral {
      const { mainAlias } = this.expressionMap
      const values = super.getValueSet()
      if (!mainAlias?.hasMetadata) return values
      return withChangedHashes(values, mainAlias.metadata, (text) => this.createParameter(text))
    }

    override buildWhere(where: ObjectLiteral, metadata: EntityMetadata, alias: string, embedPrefix?: string): string {
      const prefix = embedPrefix === undefined ? '' : `${embedPrefix}.`
      const rewritten = isConditions(where) ? rewriteWhere(where, metadata, prefix) : where
      return super.buildWhere(rewritten, metadata, alias, embedPrefix)
    }
  }
  for (const name of DERIVING) {
    const value = function (this: QueryBuilder, ...args: unknown[]): unknown {
      return rewriting(Base.prototype[name].apply(this, args))
    }
    Object.defineProperty(Rewriting.prototype, name, { value, configurable: true, writable: true })
  }
  Object.defineProperty(Rewriting.prototype, REWRITES, { value: true })
  return Object.defineProperty(Rewriting, 'name', { value: Base.name })
}

/** Whether the database of a DataSource has Citus, which may move a table at any time. */
const withCitus = new WeakMap<DataSource, boolean>()

/**
 * Refuses a write to a table of ours that Citus distributes in an unsupported way. Also refuses rows of several shards
 * with ids from the database: TypeORM assigns returned rows to its entities in order, and Citus returns them by shard.
 *
 * @throws DeclarationError, SchemaDriftError
 */
async function requirePlace({ queryRunner, expressionMap }: QueryBuilder, metadata: EntityMetadata): Promise<void> {
  const dataSource = dataSourceOf(metadata)
  if ([textsOfTable, namesOfTable, numbersOfTable].every((declared) => declared(metadata).length === 0)) return
  const query: Query = async (sql, parameters) =>
    (await (queryRunner ?? dataSource).query(sql, parameters)) as readonly unknown[]
  const citus = withCitus.get(dataSource) ?? (await hasCitus(query))
  withCitus.set(dataSource, citus)
  if (!citus) return
  const root = rootOf(metadata)
  const relation = tableName(entityTable(root))
  const spread = await spreadOf(query, relation, { citus, partitionedBy: [] }, tablesBeside(root))
  refuseSpread(root, spread)
  const by = spread.distribution?.column
  const { queryType, valuesSet } = expressionMap
  const [column] = metadata.getInsertionReturningColumns()
  if (by === undefined || queryType !== 'insert' || !Array.isArray(valuesSet) || !column) return
  const shard = metadata.columns.find(({ databaseName }) => databaseName === by)
  const values = new Set(valuesSet.map((row) => shard?.getEntityValue(row) as unknown))
  if (valuesSet.length < 2 || (values.size === 1 && /number|string/.test(typeof [...values][0]))) return
  throw new DeclarationError(
    `Several rows of ${metadata.name} in one insert would get each other's "${column.propertyPath}": its table is ` +
      `distributed by "${by}", and Citus returns rows by shard. Use insertOrFail() or findOrCreateMany(), or save them one by one.`,
  )
}

/** Methods that return a builder of another class. TypeORM creates it from its own list of classes. */
const DERIVING = ['select', 'insert', 'update', 'delete', 'softDelete', 'restore'] as const

/**
 * Returns conditions on an entity with every unique text in its stored form, and with the hash next to each equality,
 * so that the unique index is used. The given conditions are not modified. They are returned if nothing changes.
 *
 * The hash is added as a separate condition, which holds wherever the equality holds.
 *
 * @param prefix of an embedded that the conditions belong to, for instance `address.`
 */
function rewriteWhere(where: ObjectLiteral, metadata: EntityMetadata, prefix = ''): ObjectLiteral {
  const rewritten = textsOfTable(metadata).reduce((one, text) => rewriteText(one, text, prefix), where)
  return namesOfTable(metadata).reduce((one, name) => rewriteName(one, name, prefix), rewritten)
}

/**
 * Rewrites conditions on an entity and, in the same object, conditions on related entities.
 *
 * @param outer objects that contain these conditions, because an entity can refer back to itself
 */
function rewriteDeep(where: ObjectLiteral, metadata: EntityMetadata, outer: readonly object[] = []): ObjectLiteral {
  const seen = [...outer, where]
  return metadata.relations.reduce(
    (one, { propertyPath, inverseEntityMetadata }) => {
      const path = propertyPath.split('.')
      const related = valueAt(one, path)
      if (!isConditions(related) || seen.includes(related)) return one
      const rewritten = rewriteDeep(related, inverseEntityMetadata, seen)
      return rewritten === related ? one : withValue(one, path, rewritten)
    },
    rewriteWhere(where, metadata),
  )
}

/** Whether TypeORM treats the object as conditions by property. An operator, brackets and a list are not. */
const isConditions = (value: unknown): value is ObjectLiteral =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !('@instanceof' in value)

function rewriteText(where: ObjectLiteral, declaration: Declaration, prefix: string): ObjectLiteral {
  const parts = declaration.text.flatMap((part) => {
    const { propertyPath } = part.column
    const path = propertyPath.slice(prefix.length).split('.')
    const given = propertyPath.startsWith(prefix) ? valueAt(where, path) : undefined
    return given === undefined ? [] : [{ path, given, condition: givenCondition(declaration, part, given) }]
  })
  const stored = parts.reduce(
    (one, { path, given, condition }) => (condition.value === given ? one : withValue(one, path, condition.value)),
    where,
  )
  const conditions = parts.map(({ condition }) => condition)
  const indexed = conditions.some((one) => one.indexed)
  const { name, metadata, text } = declaration
  const rewrites = registry.settings.get(dataSourceOf(metadata))?.rewriteQueries ?? true
  if (!indexed && !rewrites) return stored
  const whole = prefix === '' && conditions.length === text.length
  if (indexed && !whole) {
    const columns = text.map(({ column }) => `"${column.propertyPath}"`).join(', ')
    throw new DeclarationError(
      `textEquals() and textIn() look by the index of "${name}" of ${metadata.name}, which needs a condition on each of ` +
        `${columns}. Give them all beside each other, or use Equal() and In().`,
    )
  }
  const hashes = whole ? hashesOf(declaration, conditions) : undefined
  return hashes ? withHashes(stored, declaration, hashes) : stored
}

/** The table of a holder has no hash of a name. Its index is over the name itself. */
function rewriteName(where: ObjectLiteral, { text }: NameDeclaration, prefix: string): ObjectLiteral {
  const { propertyPath } = text.column
  const given = prefix === '' ? valueAt(where, [propertyPath]) : undefined
  if (given === undefined || given === null) return where
  const { value } = storedCondition(text, given)
  return value === given ? where : withValue(where, [propertyPath], value)
}

/** NULL is a condition only if the DataSource allows it. */
function givenCondition({ metadata }: Declaration, part: Declaration['text'][number], given: unknown): StoredCondition {
  if (given !== null) return storedCondition(part, given)
  const { invalidWhereValuesBehavior: behaviour } = dataSourceOf(metadata).options
  return { value: null, texts: behaviour?.null === 'sql-null' ? [null] : undefined }
}

/**
 * Returns the hashes of all texts that can meet the conditions, or undefined if they are not limited. Only one of the
 * conditions may have several texts.
 */
export function hashesOf(
  { table }: Declaration,
  conditions: readonly Pick<StoredCondition, 'texts'>[],
): readonly string[] | undefined {
  let rows: readonly (readonly (string | null)[])[] = [[]]
  for (const { texts } of conditions) {
    if (!texts || (rows.length > 1 && texts.length > 1)) return undefined
    rows = rows.flatMap((row) => texts.map((text) => [...row, text]))
  }
  // A row without a text has no hash.
  if (table.nullable && rows.some((row) => row.every((text) => text === null))) return undefined
  return [...new Set(rows.map((row) => hashOfTexts(table, row)))]
}

function withHashes(where: ObjectLiteral, declaration: Declaration, hashes: readonly string[]): ObjectLiteral {
  const [hash] = declaration.hidden
  // Without a text, the conditions already find nothing.
  if (!hash || hash.propertyPath in where || hashes.length === 0) return where
  const equality = hashes.length === 1 ? storedEqual(hashes[0]) : storedAny(hashes)
  const seen = knownReady(declaration) !== undefined
  const none = storedRaw((column) => orNoHash(column, markFor(declaration)))
  return withValue(where, [hash.propertyPath], seen ? equality : storedJunction('or', [equality, none]))
}

/** Reads only own properties. TypeORM builds no conditions from an entity's accessors, so none is called here. */
export function valueAt(where: unknown, [key, ...rest]: readonly string[]): unknown {
  if (key === undefined) return where
  return isConditions(where) && Object.hasOwn(where, key) ? valueAt(where[key], rest) : undefined
}

/** Returns a copy with another value. An instance keeps its class. */
function withValue(where: unknown, [key, ...rest]: readonly string[], value: unknown): ObjectLiteral {
  const copy: ObjectLiteral = Object.assign(Object.create(Object.getPrototypeOf(where)) as object, where)
  if (key !== undefined) copy[key] = rest.length === 0 ? value : withValue(copy[key], rest, value)
  return copy
}

type TextPart = Declaration['text'][number]

/** The result of converting a condition on one text column. */
interface StoredCondition {
  /** The value that TypeORM gets instead of the given condition. It is already normalized. */
  readonly value: unknown
  /** All texts that a matching row can hold, with null for a row without a text. If undefined, any text. */
  readonly texts: readonly (string | null)[] | undefined
  /** The condition was created by `textEquals` or `textIn`, which guarantee the use of the index. */
  readonly indexed?: boolean
}

/**
 * Converts the texts of a condition to their stored form. It converts texts that are compared for equality, but not
 * patterns or bounds. A refused text equals no stored text.
 */
export const storedCondition = (part: TextPart, given: unknown): StoredCondition => conditionOn(part, given, false)

/** @param negated under a `Not`, where a refused text must exclude the rows without a text, like any other text */
function conditionOn(part: TextPart, given: unknown, negated: boolean): StoredCondition {
  if (given === undefined || given === null || isStored(given)) return { value: given, texts: undefined }
  if (!InstanceChecker.isFindOperator(given)) return equality(part, given, negated)
  const operator = given as FindOperator<unknown>
  const texts = operatorTexts(operator)
  if (texts) return { ...membership(part, texts, { negated, toOperator: oneOrAny }), indexed: true }
  return (CONDITIONS[operator.type] ?? pattern)(part, operator, negated)
}

type ConditionOf = (part: TextPart, operator: FindOperator<unknown>, negated: boolean) => StoredCondition

const CONDITIONS: Readonly<Record<string, ConditionOf>> = {
  equal: (part, operator, negated) =>
    operator.value === null ? pattern(part, operator) : equality(part, operator.value, negated),
  in: (part, operator, negated) =>
    Array.isArray(operator.value)
      ? membership(part, operator.value, { negated, toOperator: storedIn })
      : pattern(part, operator),
  any: (part, operator, negated) =>
    Array.isArray(operator.value)
      ? membership(part, operator.value, { negated, toOperator: storedAny })
      : pattern(part, operator),
  isNull: (_, operator) => ({ value: storedCopy(operator, undefined), texts: [null] }),
  not: (part, { child, value }) => {
    const operand = conditionOn(part, child ?? value, true)
    return { value: storedNot(operand.value as FindOperator<unknown>), texts: undefined }
  },
  and: (part, { value }, negated) => {
    const operands = [value].flat().map((one) => conditionOn(part, one, negated))
    const texts = operands.find((one) => one.texts !== undefined)?.texts
    return {
      value: storedJunction(
        'and',
        operands.map((one) => one.value),
      ),
      texts,
      indexed: isIndexed(operands),
    }
  },
  or: (part, { value }, negated) => {
    const operands = [value].flat().map((one) => conditionOn(part, one, negated))
    const texts = operands.map((one) => one.texts)
    return {
      value: storedJunction(
        'or',
        operands.map((one) => one.value),
      ),
      texts: texts.every((one) => one !== undefined) ? texts.flat() : undefined,
      indexed: isIndexed(operands),
    }
  },
}

/** A long list has no more parameters than a short one. */
function oneOrAny(values: readonly unknown[]): FindOperator<unknown> {
  if (values.length === 0) return storedIn([])
  return values.length === 1 ? storedEqual(values[0]) : storedAny(values)
}

const isIndexed = (operands: readonly StoredCondition[]): boolean => operands.some(({ indexed }) => indexed === true)

const equality = (part: TextPart, given: unknown, negated: boolean): StoredCondition =>
  membership(part, [given], { negated, toOperator: ([stored]) => storedEqual(stored) })

interface Membership {
  readonly negated: boolean
  /** Called with at least one value, unless none was given. */
  readonly toOperator: (values: readonly unknown[]) => FindOperator<unknown>
}

function membership(part: TextPart, given: readonly unknown[], { negated, toOperator }: Membership): StoredCondition {
  const values = given.map((one) => storedValue(part, one)).filter((one) => one !== REFUSED_VALUE)
  if (values.length === 0 && given.length > 0) {
    return { value: negated ? storedRaw(equalsNoText) : storedIn([]), texts: [] }
  }
  // NULL equals nothing.
  const texts = values.filter((one) => one !== null)
  return { value: toOperator(values), texts: texts.every((one) => typeof one === 'string') ? texts : undefined }
}

const REFUSED_VALUE = Symbol('refused')

/** Returns a value as the column stores it: after the user's own transformers, and normalized. */
function storedValue({ column, normalizer, transformers }: TextPart, given: unknown): unknown {
  const value = transformers.reduce((one: unknown, transformer) => transformer.to(one) as unknown, given)
  if (value === undefined || value === null) return value
  // A value that is not a text is a mistake, and not a text without a holder.
  if (typeof value !== 'string') return normalizeText(normalizer, column.propertyPath, value)
  try {
    return normalizeText(normalizer, column.propertyPath, value)
  } catch (error) {
    if (error instanceof TextRejectedError) return REFUSED_VALUE
    throw error
  }
}

/** Only the user's own transformers process patterns, ranges and SQL, as everywhere in TypeORM. */
function pattern({ transformers }: TextPart, operator: FindOperator<unknown>): StoredCondition {
  const { type, value, multipleParameters } = operator
  const toStored = (given: unknown): unknown =>
    transformers.reduce((one: unknown, transformer) => transformer.to(one) as unknown, given)
  const isText = type !== 'raw' && value !== undefined
  const transformed = multipleParameters && Array.isArray(value) ? value.map(toStored) : toStored(value)
  return { value: storedCopy(operator, isText ? transformed : value), texts: undefined }
}
