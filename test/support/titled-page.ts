import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText, UniqueTextEntity } from '../../src'

/** A page with a title, for test files that need no other column. */
@Entity()
export class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText() url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}
