import { BaseEntity, type DeepPartial } from 'typeorm'
import type {
  FindOneByTextOptions,
  FindOrCreateManyOptions,
  FindOrCreateOptions,
  UpsertByTextOptions,
} from '../rows/call-options'
import type { GivenValues, Naming } from '../rows/given-values'
import { findOrCreateMany, type FindOrCreateManyResult } from './find-or-create-many'
import { findOneByText, findOrCreate, type FindOrCreateResult } from './find-or-create'
import { upsertByText } from './upsert'
import { insertOrFail, type Writable } from './insert-or-fail'
import { type RowId, updateOrFail } from './update-or-fail'

type EntityClass<Entity extends UniqueTextEntity> = (new () => Entity) & typeof UniqueTextEntity

/**
 * TypeORM's BaseEntity with the operations of this package. Each of them uses the entity's DataSource, outside any
 * transaction of yours; within one, call the functions with its manager.
 *
 * @example
 * const { entity, created } = await Page.findOrCreate({ url: 'http://example.com/' })
 */
export class UniqueTextEntity extends BaseEntity {
  static async findOrCreate<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOrCreateOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateResult<Entity>> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOrCreate(manager, target, values, options)
  }

  static async findOrCreateMany<
    Entity extends UniqueTextEntity,
    Given = DeepPartial<Entity>,
    By extends string = string,
  >(
    this: EntityClass<Entity>,
    inputs: readonly GivenValues<NoInfer<Entity>, Given, NoInfer<By>>[],
    options?: Naming<By, FindOrCreateManyOptions<NoInfer<Entity>>>,
  ): Promise<FindOrCreateManyResult<Entity>[]> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOrCreateMany(manager, target, inputs, options)
  }

  static async findOneByText<Entity extends UniqueTextEntity, Given = DeepPartial<Entity>, By extends string = string>(
    this: EntityClass<Entity>,
    values: GivenValues<NoInfer<Entity>, Given, NoInfer<By>>,
    options?: Naming<By, FindOneByTextOptions<NoInfer<Entity>>>,
  ): Promise<Entity | null> {
    const { manager, target } = this.getRepository<Entity>()
    return await findOneByText(manager, target, values, options)
  }

  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    rows: readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[]>
  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    row: DeepPartial<NoInfer<Entity>>,
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateResult<Entity>>
  static async upsertByText<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    rows: DeepPartial<NoInfer<Entity>> & readonly DeepPartial<NoInfer<Entity>>[],
    options?: UpsertByTextOptions<NoInfer<Entity>>,
  ): Promise<FindOrCreateManyResult<Entity>[] | FindOrCreateResult<Entity>> {
    const { manager, target } = this.getRepository<Entity>()
    return await upsertByText<Entity>(manager, target, rows, options)
  }

  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: readonly Writable<NoInfer<Entity>>[],
  ): Promise<Entity[]>
  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: Writable<NoInfer<Entity>>,
  ): Promise<Entity>
  static async insertOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    values: Writable<Entity> | readonly Writable<Entity>[],
  ): Promise<unknown> {
    const { manager, target } = this.getRepository<Entity>()
    return await insertOrFail(manager, target, values as DeepPartial<Entity>)
  }

  static async updateOrFail<Entity extends UniqueTextEntity>(
    this: EntityClass<Entity>,
    id: RowId<NoInfer<Entity>>,
    changes: Writable<NoInfer<Entity>>,
  ): Promise<Entity> {
    const { manager, target } = this.getRepository<Entity>()
    return await updateOrFail(manager, target, id, changes)
  }
}
