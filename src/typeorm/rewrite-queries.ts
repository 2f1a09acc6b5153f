import type { DataSource, EntityMetadata, ObjectLiteral, QueryRunner } from 'typeorm'
import { DeclarationError } from '../errors'
import type { Query } from '../sql/catalog'
import { hasCitus, isDistributed } from '../sql/spread'
import { tableName } from '../sql/text-table'
import { knownReady } from './readiness'
import { dataSourceOf, tableDeclarations } from './registry'
import { isConditions, rewriteDeep, rewriteWhere } from './rewrite-where'

/** The protected parts of TypeORM's query builders that conditions go through. */
interface QueryBuilder extends Record<(typeof DERIVING)[number], (...args: unknown[]) => unknown> {
  execute(): Promise<unknown>
  readonly queryRunner?: QueryRunner
  readonly expressionMap: {
    readonly queryType?: string
    readonly valuesSet?: unknown
    readonly mainAlias?: { readonly hasMetadata: boolean; readonly metadata: EntityMetadata }
  }
  /** Criteria, and what `where()`, `andWhere()` and `orWhere()` are given, also within brackets. */
  getWhereCondition(where: unknown): unknown
  /** Find options; calls itself for lists, embeddeds and related entities. */
  buildWhere(where: ObjectLiteral, metadata: EntityMetadata, alias: string, embedPrefix?: string): string
}

interface QueryBuilderClass {
  new (...args: unknown[]): QueryBuilder
  readonly prototype: QueryBuilder
}

const REWRITES = Symbol.for('typeorm-unique-text.rewrites')

/**
 * Makes the conditions of every query of this DataSource look by the hash. No prototype of TypeORM's is changed: the query
 * builders that this one instance makes become instances of a subclass, and so do those which they make in turn.
 */
export function rewriteQueries(dataSource: DataSource): void {
  if (REWRITES in dataSource) return
  const create = dataSource.createQueryBuilder.bind(dataSource) as unknown as (...args: unknown[]) => object
  const createQueryBuilder = (...args: unknown[]): unknown => rewriting(create(...args))
  Object.defineProperty(dataSource, 'createQueryBuilder', {
    value: createQueryBuilder,
    configurable: true,
    writable: true,
  })
  Object.defineProperty(dataSource, REWRITES, { value: true })
}

const subclasses = new WeakMap<Function, QueryBuilder>()

/** The builder itself, as an instance of a subclass: TypeORM's `clone()` and `createQueryBuilder()` ask for its class. */
function rewriting<T>(builder: T): T {
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
      const { mainAlias, queryType, valuesSet } = this.expressionMap
      if (queryType === 'insert' && Array.isArray(valuesSet) && valuesSet.length > 1 && mainAlias?.hasMetadata) {
        await requireOrder(this, mainAlias.metadata)
      }
      return await super.execute()
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

/**
 * TypeORM gives the rows that come back to its entities one after the other, and a distributed table gives them by shard.
 *
 * @throws DeclarationError where an entity would get what belongs to another one
 */
async function requireOrder({ queryRunner }: QueryBuilder, metadata: EntityMetadata): Promise<void> {
  const [column] = metadata.getInsertionReturningColumns()
  if (!column || !(await comeByShard(metadata, queryRunner))) return
  throw new DeclarationError(
    `Several rows of ${metadata.name} in one insert would get each other's "${column.propertyPath}": its table is ` +
      `distributed, and Citus returns rows by shard. Use insertOrFail() or findOrCreateMany(), or save them one by one.`,
  )
}

/** DataSources whose database has no Citus; one that has may distribute a table at any time. */
const withoutCitus = new WeakSet<DataSource>()

async function comeByShard(metadata: EntityMetadata, queryRunner: QueryRunner | undefined): Promise<boolean> {
  const [declaration] = tableDeclarations(metadata)
  if (!declaration) return false
  if (declaration.table.spread === 'citus' || knownReady(declaration)?.distributed === true) return true
  const dataSource = dataSourceOf(metadata)
  if (withoutCitus.has(dataSource)) return false
  const query: Query = async (sql, parameters) =>
    (await (queryRunner ?? dataSource).query(sql, parameters)) as readonly unknown[]
  if (await hasCitus(query)) return await isDistributed(query, tableName(declaration.table))
  withoutCitus.add(dataSource)
  return false
}

/** Methods that give a builder of another class, which TypeORM makes by its own list of classes. */
const DERIVING = ['select', 'insert', 'update', 'delete', 'softDelete', 'restore'] as const
